# without.sh PASS FILE.tir DIR: FILE by its target's pipeline, but for the pass PASS.
set -e
rm -rf "$3"
attn-opt "$2" --dump-dir="$3" >"$3.whole"
attn-opt "$2" --passes="$(ls -v "$3" | sed 's/^[0-9]*-//; s/\.tir$//' |
  grep -vx "$1" | paste -sd,)"
