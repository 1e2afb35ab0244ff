#!/bin/sh
# run.sh: runs every suite and ends with "N passed, N failed" (", N skipped" if any were). Arguments: the build folder, the kvstep
# binary and "san" when they are sanitized.
set -u
build=$1
KVSTEP=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
KVSTEP_BUILD=$(cd "$build" && pwd)
KVSTEP_SAN=${3:-}
export KVSTEP KVSTEP_BUILD KVSTEP_SAN
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
unset NO_COLOR
python=python3
$python -c 'import numpy, sqlite3' 2>/dev/null || python=/usr/bin/python3

work=$(mktemp -d "${TMPDIR:-/tmp}/kvstep-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
skipped=0

# suite NAME COMMAND…: counts TAP lines, or takes a closing "N passed, N failed"; shows the output only where something failed.
suite() {
  name=$1
  shift
  CMOCKA_MESSAGE_OUTPUT=TAP "$@" >"$work/log" 2>&1 </dev/null
  status=$?
  s=$(grep -cE '^(not )?ok .*# SKIP' "$work/log") # cmocka writes a skipped test as "not ok … # SKIP"
  p=$(grep -E '^ok ' "$work/log" | grep -vc '# SKIP')
  f=$(grep -E '^not ok ' "$work/log" | grep -vc '# SKIP')
  closing=$(grep -E '[0-9]+ passed, [0-9]+ failed' "$work/log" | tail -n 1)
  count() { echo "$closing" | grep -oE "[0-9]+ $1" | grep -oE '^[0-9]+' || echo 0; }
  if [ -n "$closing" ]; then
    p=$(count passed)
    f=$(count failed)
    s=$(count skipped)
  fi
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  if [ "$((p + f + s))" -eq 0 ]; then f=1; fi # a suite that ran nothing has failed
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + s))
  printf '%-28s %5d passed, %d failed%s\n' "$name" "$p" "$f" "$([ "$s" -eq 0 ] || echo ", $s skipped")"
  if [ "$f" -gt 0 ]; then tail -n 200 "$work/log"; fi
}

for test in "$build"/tests/test_*; do
  case $test in *.o | *.d) continue ;; esac
  suite "$(basename "$test")" "$test"
done
# The views on what the engine itself wrote. A sanitized extension cannot be loaded into another program.
if [ -z "$KVSTEP_SAN" ]; then
  for model in reverse austen; do
    "$KVSTEP" run -m "$model" -n 6 -o "$work/$model.db" --fault off-by-one >"$work/log" 2>&1 || cat "$work/log"
    suite "views/$model" sh -c '"$1" -B tests/trace_views.py "$2" "$3" && echo "ok 1 - views"' sh "$python" "$work/$model.db" "$build/kvstep.so"
  done
fi
suite docs/examples "$python" -B tests/docs_examples.py "$KVSTEP" README.md docs/*.md
for model in reverse austen; do
  suite "compare/$model" sh -c '"$1" -B tests/compare_reference.py "$2" "$3" "$4" && echo "ok 1 - compare"' sh "$python" "$KVSTEP" "$model" "$work"
done
suite recorders "$python" -B tests/recorders.py "$KVSTEP" "$KVSTEP_BUILD" "$work/recorders"
mkdir -p "$work/other"
suite check/other-engine "$python" -B tests/check_other_engine.py "$KVSTEP" "$work/other"
suite reference/selftest "$python" tests/reference/selftest.py
suite reference "$python" tests/reference/run.py "$KVSTEP" "$work/reference"

if [ "$skipped" -gt 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
