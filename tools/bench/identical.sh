#!/usr/bin/env bash
# identical.sh OLD NEW [FILE.attn ..]: are the objects that two builds of attnc
# make byte for byte the same? OLD and NEW are build folders. The files are the
# library's programs and the benchmarks' unless named. Each object has all
# specializations for each target of TARGETS; NVIDIA's code is compared as PTX.
# Prints what differs; exit code 1 if anything does.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -gt 0 ] || set -- "$root"/stdlib/{attention,recurrent}/*.attn "$root"/tools/bench/gpu/*.attn
export TARGETS=${TARGETS:-cpu,sm_90a,sm_80,gfx942,gfx1100} ATTNC_PTXAS=none ATTNC_CACHE=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export old new work

# one FILE: the two objects, or what the compilers say instead, compared.
one() {
  local name t which
  name=$(basename "$(dirname "$1")")-$(basename "$1" .attn)
  for t in ${TARGETS//,/ }; do
    for which in old new; do
      "${!which}/bin/attnc" "$1" -o "$work/$name.$t.$which.o" --prefix x \
        --target "$t" >"$work/$name.$t.$which.log" 2>&1 || true
    done
    if cmp -s "$work/$name.$t.old.log" "$work/$name.$t.new.log" &&
      { [ ! -e "$work/$name.$t.old.o" ] ||
        cmp -s "$work/$name.$t.old.o" "$work/$name.$t.new.o"; }; then
      echo "same $name $t"
    else
      echo "DIFFERS $name $t"
    fi
    rm -f "$work/$name.$t".*
  done
}
export -f one

printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'one {}' >"$work/result"
grep DIFFERS "$work/result" || true
echo "$(grep -c ^same "$work/result" || true) same, $(grep -c ^DIFFERS "$work/result" || true) differ"
! grep -q DIFFERS "$work/result"
