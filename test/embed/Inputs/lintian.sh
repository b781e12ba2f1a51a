# lintian.sh FOLDER: what lintian says of the packages in it; "clean" if that is
# nothing, or there is no lintian.
if command -v lintian > /dev/null; then
  lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$1"/*.deb && echo clean
else
  echo clean
fi
