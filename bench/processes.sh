#!/usr/bin/env bash
# Trains with all devices in one process and with each in its own, by turns, and prints the medians of their steps and of the ratios of
# the pairs, and of the processor time of all processes, their own and the system's, for a step: what a run takes beyond one of SHORT
# steps. Both plan from the same measured chain; exits with 1 when the weights of any two differ.
#
#   bench/processes.sh PLIMSOLL [PAIRS]
set -euo pipefail
program=$1 pairs=${2:-5}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9a-z.e+-]*\)\"\{0,1\}.*/\1/p" "$2" | head -1; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

short=2
TIMEFORMAT='%U %S'

# train NAME STEPS COMMAND...: trains so many steps, and prints the processor time of all processes, s
train() {
  local name=$1 steps=$2
  shift 2
  { time "$@" --steps "$steps" >"$out/$name.json" 2>/dev/null; } 2>&1 | awk '{ print $1 + $2 }'
}

# both NAME STEPS COMMAND...: notes the time of a step, and the processor time of one
both() {
  local name=$1 steps=$2 a b
  shift 2
  a=$(train "$name" "$short" "$@") b=$(train "$name" "$steps" "$@")
  field measured_s_per_step "$out/$name.json" >>"$out/$name"
  awk "BEGIN { print ($b - $a) / ($steps - $short) }" >>"$out/$name.busy"
}

# pair DEVICES STEPS FLAG...: one row
pair() {
  local devices=$1 steps=$2
  shift 2
  rm -rf "$out/run" "$out"/{one,each}{,.busy}
  "$program" train --quiet --data glyphs "${model[@]}" "$@" --steps 8 --devices "cpu*$devices" --out "$out/run" >/dev/null
  local common=(--world auto --quiet --json --profile "$out/run/chain.json" --data glyphs "${model[@]}" "$@")
  for _ in $(seq "$pairs"); do
    both one "$steps" "$program" train "${common[@]:2}" --devices "cpu*$devices"
    both each "$steps" "$program" launch -n "$devices" -- train "${common[@]}" --devices cpu
    [ "$(field weights_sha256 "$out/one.json")" = "$(field weights_sha256 "$out/each.json")" ] || { echo "processes.sh: other weights: ${model[*]} $*" >&2; exit 1; }
  done
  printf '| %s %s --steps %d | %d | %s | %s | %s |\n' "${model[*]}" "$*" "$steps" "$devices" "$(columns "")" \
    "$(ratios "" | sort -g | sed -n '1p;$p' | xargs printf '%.3f to %.3f')" "$(columns .busy)"
}

ratios() { paste "$out/one$1" "$out/each$1" | awk '{ print $2 / $1 }'; }

columns() {
  local ms='{ printf "%.1f ms", 1e3 * $1 }'
  printf '%s | %s | %.3f' "$(median <"$out/one$1" | awk "$ms")" "$(median <"$out/each$1" | awk "$ms")" "$(ratios "$1" | median)"
}

echo "| training | devices | step, one process | step, a process for each | ratio | of the pairs | processor time, one process | processor time, a process for each | ratio |"
echo "|---|---:|---:|---:|---:|---|---:|---:|---:|"
flush=(--strategy 1f1b-flush --microbatches 8)
model=(-m resnet20 --batch 256)
pair 2 12 "${flush[@]}" --debug threads=1
pair 4 12 "${flush[@]}" --debug threads=1
model=(-m resnet20 --batch 64)
pair 4 40 --strategy contiguous --versions stash --debug threads=1
model=(-m resnet50 --image 64 --batch 32)
pair 4 8 "${flush[@]}" --debug threads=1
model=(-m resnet20 --batch 256)
pair 4 12 "${flush[@]}" --debug threads=2
