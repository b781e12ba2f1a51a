#!/usr/bin/env bash
# Proves the README's two commands on a bare Debian: a chroot of this machine's
# release with git and ca-certificates only, the committed tree cloned into it.
#   tools/bare-debian.sh [FOLDER [STEP..]]     root; steps: packages quickstart test user
# `packages` installs attnc's Debian package, made of build/, and runs a first
# program: four commands. `user` repeats both commands of the README as a user
# who is not root, with all packages there. Each step is timed: quickstart has 5 minutes, test 20. The chroot stays
# in FOLDER (default: a new temporary folder) and is used again if it is there.
# MIRROR is the address of a Debian mirror (default: this machine's).
set -euo pipefail
. "$(dirname "$0")/setup.sh"

# The first address in apt's lists that ends in /debian.
this_mirror() {
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true; } |
    grep -oE 'https?://[^ ]*/debian/?( |$)' |
    sed -n '1{s| *$||; s|/$||; p}'
}

MIRROR=${MIRROR:-$(this_mirror)}
[ -n "$MIRROR" ] || { echo "set MIRROR to a Debian mirror" >&2; exit 2; }
dir=${1:-$(mktemp -d)}
shift || true
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(packages quickstart test user)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
TIMEFORMAT='%0R s, %0U s of user and %0S s of system time'

[ "$(id -u)" = 0 ] || { echo "a chroot is made by root" >&2; exit 2; }
install_packages debootstrap

mounts=(proc dev/pts dev/shm dev)
leave() {
  local m
  for m in "${mounts[@]}"; do
    ! mountpoint -q "$dir/$m" || umount "$dir/$m"
  done
}
trap leave EXIT

# What Debian's installer writes: the release, its updates, its security suite.
sources() {
  echo "deb $MIRROR $release main"
  echo "deb $MIRROR $release-updates main"
  echo "deb $MIRROR-security $release-security main"
}

make_chroot() {
  echo "making a bare Debian ($release) in $dir .."
  debootstrap --variant=minbase --include=git,ca-certificates "$release" \
    "$dir" "$MIRROR" >"$dir.log" 2>&1 || { tail -20 "$dir.log"; exit 1; }
  sources >"$dir/etc/apt/sources.list"
}

mount_all() {
  cp -L /etc/resolv.conf "$dir/etc/resolv.conf"
  mount -t proc proc "$dir/proc"
  mount --bind /dev "$dir/dev"
  mount -t devpts devpts "$dir/dev/pts"
  mountpoint -q "$dir/dev/shm" || mount -t tmpfs tmpfs "$dir/dev/shm"
}

# inside USER COMMAND: as a newcomer's shell has it, no variable of ours.
inside() {
  local user=$1 home=/root
  [ "$user" = root ] || home=/home/$user
  shift
  chroot --userspec="$user:$user" "$dir" /usr/bin/env -i HOME="$home" \
    TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    FUZZ_SECONDS="${FUZZ_SECONDS:-10}" bash -c "cd && $*"
}

fresh_clone() {
  local at=$dir$1
  rm -rf "$at/attnc"
  git clone -q --no-local "$ROOT" "$at/attnc"
}

# limited SECONDS USER COMMAND: fails if it fails or takes longer.
limited() {
  local limit=$1 from=$SECONDS
  shift
  echo "== $* (as $1)"
  time inside "$@"
  [ $((SECONDS - from)) -le "$limit" ] || {
    echo "took more than $limit s" >&2
    return 1
  }
}

# What docs say of a machine without sources: four commands.
by_package() {
  [ -x "$ROOT/build/bin/attnc" ] || build_in "$ROOT/build"
  rm -rf "$dir/root/debs"
  cpack -G DEB --config "$ROOT/build/CPackConfig.cmake" -B "$dir/root/debs" \
    >"$dir.log" 2>&1 || { tail -20 "$dir.log"; exit 1; }
  limited 300 root "apt-get update -qq && \
    apt-get install -qq -y ./debs/attnc_*.deb >/dev/null && \
    rm -rf first && attnc init first && \
    attnc check first/attention.attn"
}

[ -x "$dir/usr/bin/git" ] || make_chroot
mount_all
for step in "${steps[@]}"; do
  case $step in
  packages) by_package ;;
  quickstart)
    fresh_clone /root
    limited 300 root attnc/tools/quickstart.sh ;;
  test)
    [ -d "$dir/root/attnc" ] || fresh_clone /root
    limited 1200 root attnc/tools/test.sh ;;
  user)
    id="$(inside root "id -u dev 2>/dev/null" || true)"
    [ -n "$id" ] || inside root "useradd -m -s /bin/bash dev"
    fresh_clone /home/dev
    inside root "chown -R dev:dev /home/dev/attnc"
    limited 300 dev attnc/tools/quickstart.sh
    limited 1200 dev attnc/tools/test.sh ;;
  *) echo "unknown step '$step'" >&2; exit 2 ;;
  esac
done
