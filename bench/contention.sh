#!/usr/bin/env bash
# Trains a GPT-2 along cyclic plans with kernels on all cores, and prints a table: the median step as measured, and the same plans' steps
# as predicted with what ops, copies and updates on the host take from each other, and without it.
#
#   bench/contention.sh RUNS MODEL STRATEGY:MEMORY...     RUNS of each row; medians
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
runs=$1 model=(-m "$2" --length 128 --batch 4 --optimizer adamw --steps 24 --option profile.no-cache)

step() { bin/plimsoll check -c "$1" -p "$folder/run/plan.json" --json 2>/dev/null | awk -F '[:,]' '/"makespan_s"/ { printf "%.6f", $2 }'; }
median() { sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }

grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
echo "cores: $(getconf _NPROCESSORS_ONLN), load before: $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo "| strategy | limit | measured, ms | predicted, ms | error | without contention, ms | error |"
echo "|---|---:|---:|---:|---:|---:|---:|"
for row in "${@:3}"; do
  strategy=${row%:*} memory=${row#*:}
  : > "$folder/rows"
  for _ in $(seq "$runs"); do
    rm -rf "$folder/run"
    timeout 300 bin/plimsoll train "${model[@]}" --strategy "$strategy" --memory "$memory" --out "$folder/run" -q > /dev/null 2>&1
    sed -E '/^ "[a-z_]*beside[a-z_]*":/d; s/,"(forward|backward)_beside":\[[^]]*\]//g' "$folder/run/chain.json" > "$folder/plain.json"
    measured=$(grep -o '"measured_s_per_step":[0-9.e-]*' "$folder/run/run.json" | head -n 1 | cut -d : -f 2)
    echo "$measured $(step "$folder/run/chain.json") $(step "$folder/plain.json")" >> "$folder/rows"
  done
  awk -v m="$(cut -d ' ' -f 1 "$folder/rows" | median)" -v p="$(cut -d ' ' -f 2 "$folder/rows" | median)" -v q="$(cut -d ' ' -f 3 "$folder/rows" | median)" \
    -v s="$strategy" -v l="$memory" 'BEGIN { printf "| %s | %s | %.0f | %.0f | %+.0f %% | %.0f | %+.0f %% |\n", s, l, 1000*m, 1000*p, 100*(p/m-1), 1000*q, 100*(q/m-1) }'
done
echo
echo "load behind: $(cut -d ' ' -f 1 /proc/loadavg)"
