#!/bin/sh
# instructions.sh PROGRAM: how many instructions one decode step of the built-in model takes, with one thread. Counted under
# valgrind's callgrind, for runs that differ by some tokens alone: loading, prefill and ending fall out of the difference.
set -eu
program=$1
few=16
many=80

command -v valgrind >/dev/null 2>&1 || {
  echo "instructions are counted by valgrind, which is not here: install it (Debian, Ubuntu, Fedora, Arch: the package valgrind)" >&2
  exit 1
}
work=$(mktemp -d "${TMPDIR:-/tmp}/kvstep-instructions.XXXXXX")
trap 'rm -rf "$work"' EXIT

# All instructions of a run that makes so many tokens.
count() {
  valgrind --tool=callgrind --callgrind-out-file="$work/out.$1" "$program" run -m austen -p 'It is a truth' -n "$1" \
    --threads 1 >/dev/null 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
  sed -n 's/^==.*Collected : \([0-9]*\).*/\1/p' "$work/said"
}

# "function instructions" of a run, the functions' inlined parts together.
functions() {
  callgrind_annotate --threshold=100 "$work/out.$1" | sed -n 's/^ *\([0-9,]*\) ([ 0-9.]*%)  [^ ]*:\([A-Za-z_0-9]*\).*/\2 \1/p' | tr -d , |
    awk '{ sum[$1] += $2 } END { for (f in sum) print f, sum[f] }' | sort
}

a=$(count $few)
b=$(count $many)
steps=$((many - few))
echo "$(((b - a) / steps)) instructions per step: austen, 1 thread, the kernel that valgrind knows (AVX2 at most)"
functions $few >"$work/few"
functions $many >"$work/many"
join -a 2 -e 0 -o 0,1.2,2.2 "$work/few" "$work/many" |
  awk -v steps=$steps -v all=$((b - a)) '{ printf "%9d %5.1f %%  %s\n", ($3 - $2) / steps, 100 * ($3 - $2) / all, $1 }' | sort -rn | head -n 12
