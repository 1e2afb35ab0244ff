#!/bin/sh
# demo.sh: the main job in a minute: both built-in models decode a prompt, right and with both faults, each run traced. On a terminal
# the screen then opens on the backwards speller's trace; else one decode step is printed in full, and the rule is asked for
# in SQL. Arguments: the kvstep binary, the folder for the traces.
set -eu
kvstep=${1:-kvstep} # as it is typed
traces=${2:-traces}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n%s\n' "$*"; }

# three MODEL PROMPT N TRACE: one run right, one with each fault, in one file.
three() {
  "$kvstep" run -m "$1" -p "$2" -n "$3" -o "$4" --force
  for fault in off-by-one reset-to-zero; do
    printf -- '-- the same with --fault %s:\n' "$fault"
    "$kvstep" run -m "$1" -p "$2" -n "$3" -o "$4" --append --fault "$fault"
  done
}

say "1. A text model. The right run takes each position from the cache length before the append; the next two do not."
three austen "It is a truth universally acknowledged" 24 "$traces/demo-austen.db"

say "2. A model that spells backwards: here the same two faults give a confident wrong answer."
three reverse "position>" 10 "$traces/demo-reverse.db"

if [ -t 0 ] && [ -t 1 ] && [ "${TERM:-dumb}" != dumb ]; then
  say "3. The screen opens on $traces/demo-reverse.db: Space steps through the moments, r goes to the broken runs, ? helps, q leaves."
  printf 'Enter opens it. '
  read -r _ || true
  exec "$kvstep" view "$traces/demo-reverse.db"
fi

say "3. One decode step: $kvstep show $traces/demo-austen.db --run 1 --layer 1 --head 2"
"$kvstep" show "$traces/demo-austen.db" --run 1 --layer 1 --head 2

say "4. The rule, asked in SQL: $kvstep sql $traces/demo-reverse.db \"SELECT …\""
"$kvstep" sql "$traces/demo-reverse.db" "SELECT run, step, cache_length_before, position, off_by, verdict FROM rule WHERE step = 10"

say "Now try: $kvstep info $traces/demo-austen.db; $kvstep sql $traces/demo-austen.db (a shell); $kvstep help"
