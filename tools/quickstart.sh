#!/usr/bin/env bash
# Sets up, builds attnc and runs it on real input: a causal grouped-query
# attention on generated .npy files, verified against the f64 oracle.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages $BUILD_PACKAGES $RUN_PACKAGES
echo "building attnc .."
TARGETS="attnc attn attn_shared" build_in "$ROOT/build"
attnc=$ROOT/build/bin/attnc

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
program=$ROOT/stdlib/attention/gqa.attn

echo "making Q, K, V (1 x 8 heads, 2 of keys, 1024 tokens, 128 dims, bf16) .."
/usr/bin/python3 - "$dir" <<'PY'
import sys
import numpy as np
rng = np.random.default_rng(1)
for name, heads in ("Q", 8), ("K", 2), ("V", 2):
    x = rng.standard_normal((1, heads, 1024, 128), dtype=np.float32)
    np.save("%s/%s.npy" % (sys.argv[1], name), x)
PY
"$attnc" run "$program" --fn gqa --in Q="$dir/Q.npy" --in K="$dir/K.npy" \
  --in V="$dir/V.npy" --out O="$dir/O.npy" --dim T=bf16 --time --verify
echo
"$attnc" explain "$program" --fn gqa --dim D=128 --dim Dv=128 | head -40
if "$attnc" bench --help >/dev/null 2>&1; then
  echo
  "$attnc" bench "$program" --fn gqa --dim B=1 --dim Hq=8 --dim Hk=2 \
    --dim Sq=2048 --dim Sk=2048 --dim D=128 --dim Dv=128
fi
echo
cat <<TEXT
attnc is $ROOT/build/bin/attnc. A program of your own, and C that calls it:
  export PATH=$ROOT/build/bin:\$PATH
  attnc init first && cd first && attnc check attention.attn
  make CFLAGS=-I$ROOT/runtime LDFLAGS="-L$ROOT/build/lib -Wl,-rpath,$ROOT/build/lib"
"cmake --install build" puts attnc, libattn and attn.h where make finds them.
TEXT
