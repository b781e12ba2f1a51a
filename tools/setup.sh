#!/usr/bin/env bash
# Installs the Debian packages named on the command line that are missing.
# Asks for root only then. Sourced by quickstart.sh and test.sh.
set -euo pipefail

BUILD_PACKAGES="cmake ninja-build gcc libc6-dev flex bison llvm-22-dev \
  llvm-22-tools lld-22 libxxhash-dev zlib1g-dev libzstd-dev libxml2-dev \
  libffi-dev libjansson-dev"
RUN_PACKAGES="python3 python3-numpy"
TEST_PACKAGES="make binutils file pkgconf dpkg-dev g++ clang-22 clang-format-22 libclang-rt-22-dev qemu-user \
  gcc-aarch64-linux-gnu libc6-dev-arm64-cross neovim emacs-nox \
  elpa-eglot nodejs libtree-sitter-dev python3-torch man-db lintian mypy \
  python3-sphinx python3-myst-parser wasi-libc libclang-rt-22-dev-wasm32"

missing_packages() {
  local p
  command -v dpkg-query >/dev/null || {
    echo "this is no Debian; install what tools/setup.sh lists" >&2
    exit 3
  }
  for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null |
      grep -q 'install ok installed' || echo "$p"
  done
}

# Debian 12 has LLVM 22 in its security suite, which a stripped sources list
# may lack.
unknown_packages() {
  local release p need=()
  for p in "$@"; do
    [[ $(apt-cache policy "$p") == *"Candidate: "[!\(]* ]] || need+=("$p")
  done
  [ ${#need[@]} -gt 0 ] || return 0
  release=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  cat >&2 <<TEXT
apt knows no package ${need[*]}.
Debian has LLVM 22 from release 12 on, there in the security suite. If a line
like this is missing in /etc/apt/sources.list, add it and run this again:
  deb MIRROR-security $release-security main
where MIRROR is the address in the file's other lines, .../debian
TEXT
  return 1
}

install_packages() {
  local need sudo=()
  need=$(missing_packages "$@")
  [ -z "$need" ] && return 0
  need=$(echo $need)
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "these packages are missing; as root:" >&2
      echo "  apt-get update && apt-get install $need" >&2
      exit 3
    }
    sudo=(sudo)
  fi
  echo "installing: $need"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  unknown_packages $need || exit 3
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
    --no-install-recommends $need >/dev/null
}

# configure FOLDER [cmake options]: configures and builds.
build_in() {
  local dir=$1
  shift
  cmake -S "$ROOT" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    "$@" >"$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
  ninja -C "$dir" ${TARGETS:-} >>"$dir.log" 2>&1 ||
    { grep -A20 FAILED "$dir.log" | head -60; exit 1; }
}

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
