#!/usr/bin/env bash
# Sets up, builds and runs all tests: unit and lit tests, the same under ASan
# and UBSan, and each fuzz target for FUZZ_SECONDS (40 in CI, else 10) from
# FUZZ_SEED (0: another each time; 1 unless given, so that a run is repeatable).
set -euo pipefail
. "$(dirname "$0")/setup.sh"

install_packages $BUILD_PACKAGES $RUN_PACKAGES $TEST_PACKAGES
seconds=${FUZZ_SECONDS:-$([ -n "${CI:-}" ] && echo 40 || echo 10)}
passed=0 failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# run_lit NAME FOLDER [lit options]: adds to the counts.
run_lit() {
  local name=$1 dir=$2 log=$out/$1
  shift 2
  echo "== $name"
  lit-22 -v "$@" "$dir/test" >"$log" 2>&1 || true
  sed -n '/TEST .* FAILED/,/^\*\*\*\**$/p' "$log" >"$log.fails"
  grep '^FAIL' "$log" || true
  head -200 "$log.fails"
  local p f
  p=$(sed -n 's/^ *\(Passed\|Expectedly Failed\) *: *\([0-9]*\).*/\2/p' "$log" |
    paste -sd+ | sed 's/^$/0/')
  f=$(sed -n 's/^ *\(Failed\|Unresolved\|Timed Out\|Unexpectedly Passed\) *: *\([0-9]*\).*/\2/p' "$log" |
    paste -sd+ | sed 's/^$/0/')
  echo "$name: $((p)) passed, $((f)) failed"
  [ $((p + f)) -gt 0 ] || { cat "$log"; f=1; }
  passed=$((passed + p)) failed=$((failed + f))
}

# fuzz TARGET FOLDER..: the folders have what it begins with.
fuzz() {
  local target=$1 log dir seeds=()
  shift
  log=$out/$(basename "$target")
  mkdir -p "$log.corpus"
  for dir in "$@"; do
    [ ! -d "$ROOT/test/$dir" ] || seeds+=("$ROOT/test/$dir")
  done
  if "$target" -max_total_time="$seconds" -seed="${FUZZ_SEED:-1}" -rss_limit_mb=4096 -timeout=10 \
    -artifact_prefix="$log-" "$log.corpus" "${seeds[@]}" >"$log" 2>&1; then
    echo "$(basename "$target"): ${seconds} s without a finding"
  else
    echo "$(basename "$target"): FINDING"
    tail -40 "$log"
    echo "the input, for base64 -d:"
    head -c 20000 "$log"-[a-z]* | base64
    return 1
  fi
}

run_fuzz() {
  echo "== fuzz"
  local t jobs=()
  for t in "$ROOT"/test/fuzz/*.c; do
    local name seeds
    name=$(basename "$t" .c)
    case $name in
    *ir*) seeds=(ir passes/online passes/tile) ;;
    *npy*) seeds=(fuzz/corpus/npy) ;;
    *cont*) seeds=(fuzz/corpus/container) ;;
    *) seeds=(fuzz/corpus/attn ../stdlib lower) ;;
    esac
    fuzz "$ROOT/build-asan/bin/$name" "${seeds[@]}" &
    jobs+=($!)
    [ ${#jobs[@]} -lt 2 ] || { collect "${jobs[@]}"; jobs=(); }
  done
  [ ${#jobs[@]} -eq 0 ] || collect "${jobs[@]}"
}

collect() {
  local j
  for j in "$@"; do
    if wait "$j"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  done
}

echo "building .."
build_in "$ROOT/build"
run_lit tests "$ROOT/build"

echo "building with ASan and UBSan, and the fuzz targets .."
build_in "$ROOT/build-asan" -DATTNC_SANITIZE=ON -DATTNC_FUZZ=ON \
  -DCMAKE_C_COMPILER=clang-22 -DATTNC_WERROR=OFF \
  -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1"
export ASAN_OPTIONS=detect_leaks=0
# The numeric matrix and the whole command line would take most of the time, and
# so do waves of whole programs, and their gradients.
run_lit sanitized "$ROOT/build-asan" --filter \
  "${SANITIZED_TESTS:-(parse|check|fmt|diag|ir|passes|lower|runtime|lsp)/}" \
  --filter-out "${UNSANITIZED_TESTS:-passes/(spill_[a-z]*/same|grad/.*\.(attn|test))}"
unset ASAN_OPTIONS
run_fuzz

echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
