#!/usr/bin/env bash
# Trains with all devices in one process and with each in its own, by turns, and prints the medians of their steps and of the ratios of
# the pairs. Both plan from the same measured chain; exits with 1 when the weights of any two differ.
#
#   bench/processes.sh PLIMSOLL [PAIRS]
set -euo pipefail
program=$1 pairs=${2:-5}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9a-z.e+-]*\)\"\{0,1\}.*/\1/p" "$2" | head -1; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# pair DEVICES FLAG...: one row
pair() {
  local devices=$1
  shift
  rm -rf "$out/run"
  "$program" train --quiet --data glyphs "${model[@]}" "$@" --steps 8 --devices "cpu*$devices" --out "$out/run" >/dev/null
  local common=(--world auto --quiet --json --profile "$out/run/chain.json" --data glyphs "${model[@]}" "$@")
  : >"$out/one" && : >"$out/each" && : >"$out/ratio"
  for _ in $(seq "$pairs"); do
    "$program" train "${common[@]:2}" --devices "cpu*$devices" >"$out/one.json" 2>/dev/null
    "$program" launch -n "$devices" -- train "${common[@]}" --devices cpu >"$out/each.json" 2>/dev/null
    [ "$(field weights_sha256 "$out/one.json")" = "$(field weights_sha256 "$out/each.json")" ] || { echo "processes.sh: other weights: ${model[*]} $*" >&2; exit 1; }
    local a b
    a=$(field measured_s_per_step "$out/one.json") b=$(field measured_s_per_step "$out/each.json")
    echo "$a" >>"$out/one" && echo "$b" >>"$out/each" && awk "BEGIN { print $b / $a }" >>"$out/ratio"
  done
  printf '| %s %s | %d | %.1f ms | %.1f ms | %.3f | %.3f to %.3f |\n' "${model[*]}" "$*" "$devices" \
    "$(median <"$out/one" | awk '{ print 1e3 * $1 }')" "$(median <"$out/each" | awk '{ print 1e3 * $1 }')" "$(median <"$out/ratio")" \
    "$(sort -g "$out/ratio" | head -1)" "$(sort -g "$out/ratio" | tail -1)"
}

echo "| training | devices | step, one process | step, a process for each | ratio | of the pairs |"
echo "|---|---:|---:|---:|---:|---|"
flush=(--strategy 1f1b-flush --microbatches 8)
model=(-m resnet20 --batch 256)
pair 2 "${flush[@]}" --steps 12 --threads 1
pair 4 "${flush[@]}" --steps 12 --threads 1
model=(-m resnet20 --batch 64)
pair 4 --strategy contiguous --versions stash --steps 40 --threads 1
model=(-m resnet50 --image 64 --batch 32)
pair 4 "${flush[@]}" --steps 8 --threads 1
model=(-m resnet20 --batch 256)
pair 4 "${flush[@]}" --steps 12 --threads 2
