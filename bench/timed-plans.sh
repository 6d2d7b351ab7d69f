#!/usr/bin/env bash
# Trains along cyclic plans and compares the time of their steps with the prediction: a line of CSV for each plan, and a table at the end. A
# profile is measured before the plans of each model and link. Called again with the same FILE, it goes on behind the lines that FILE has.
#
#   bench/timed-plans.sh FILE.csv [FLAG...]      FLAGs are for profile and train, as --debug threads=1 --debug own-core
#   ONLY=gpt2-4-256 bench/timed-plans.sh ...     plans whose line begins with a pattern; FILE.csv alone is shown with ONLY=none
set -euo pipefail
cd "$(dirname "$0")/.."
csv=$1 && shift
head=model,optimizer,accumulate,link,strategy,limit,predicted_s,measured_s,error,drift,error_without_drift,run_predicted_s,run_measured_s,predicted_peak_bytes,measured_peak_bytes,largest_cause,cause_s,load
[ -s "$csv" ] || echo "$head" > "$csv"
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# model, flags of it, batch, optimizer, parts of a step
models='
gpt2-6-256|--length 128|4|adamw|1
gpt2-4-256|--length 128|16|muon|4
llama-4-192-4-4-512|--length 96|4|adamw|4
resnet20|--image 32|32|sgd|1'
links='0.5GB/s 2GB/s 8GB/s'
plans='resident: zero-offload: layer-window: protrain:50% greedysnake:60% weight-offload:70% residency:60% residency:35%'

# row prints a line of CSV of a finished run, of its JSON.
row() {
  awk -v name="$1" -v load="$(cut -d ' ' -f 1 /proc/loadavg)" '
    { line = $0; gsub(/[",]/, "", line); split(line, part, ": "); key = part[1]; sub(/^ */, "", key); value = part[2] }
    key == "predicted_s_per_step" && !("step" in got) { got["step"] = value }
    key == "cause" { cause = value }
    key == "seconds" && cause != "" { if (value * value > most * most) { most = value; largest = cause } cause = "" }
    !(key in got) { got[key] = value }
    END {
      printf "%s,%s,%s,%.5f,%s,%.5f,%s,%s,%s,%s,%s,%s,%s\n", name, got["step"], got["measured_s_per_step"], 1 - got["step"] / got["measured_s_per_step"],
        got["factor"], got["error"], got["predicted_s_of_run"], got["measured_s_of_run"], got["predicted_peak_bytes"], got["measured_peak_bytes"], largest, most, load
    }' "$work/run.json"
}

# plan runs one plan; a limit in which the strategy has none is a line, too.
plan() { # name strategy limit flags...
  local name=$1 limit=() status=0
  [ -z "$3" ] || limit=(--memory "$3")
  timeout 120 bin/plimsoll train "${@:4}" --strategy "$2" "${limit[@]}" --steps 20 --json > "$work/run.json" 2> "$work/errors" || status=$?
  case $status in
    0) row "$name" >> "$csv" ;;
    3) echo "$name,,,,,,,,,,no plan within the limit,," >> "$csv" ;;
    *) echo "$name: exit $status" >&2; tail -n 3 "$work/errors" >&2 ;;
  esac
}

while IFS='|' read -r model flags batch optimizer parts; do
  [ -n "$model" ] || continue
  for link in $links; do
    profile=$work/$model-${link%/s}.json
    for p in $plans; do
      strategy=${p%:*} limit=${p#*:}
      name=$model,$optimizer,$parts,$link,$strategy,$limit
      [[ $name == ${ONLY:-}* ]] || continue
      ! grep -qF "$name," "$csv" || continue
      common=(-m "$model" $flags --optimizer "$optimizer" --bandwidth "$link" "${@}")
      [ -s "$profile" ] || bin/plimsoll profile "${common[@]}" --batch $((batch / parts)) -o "$profile" > /dev/null
      plan "$name" "$strategy" "$limit" "${common[@]}" --batch "$batch" --accumulate "$parts" --profile "$profile"
    done
  done
done <<< "$models"

grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
echo "cores: $(getconf _NPROCESSORS_ONLN), load now: $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo "Errors are measured less predicted, as shares of the measured time. Drift is how many times their costs ops took that ran beside nothing."
echo
awk -F , '
  function size(x) { return x < 0 ? -x : x }
  function sort(a, n,   i, k, x) { for (i = 2; i <= n; i++) { x = a[i]; for (k = i - 1; k > 0 && a[k] > x; k--) a[k + 1] = a[k]; a[k + 1] = x } }
  function median(a, n) { sort(a, n); return n ? (a[int((n + 1) / 2)] + a[int(n / 2) + 1]) / 2 : 0 }
  NR == 1 {
    print "| model | optimizer | parts | link | strategy | limit | predicted, ms | measured, ms | error | drift | error without drift | peak as predicted | largest cause, ms |"
    print "|---|---|---:|---|---|---|---:|---:|---:|---:|---:|---|---:|"
    next
  }
  $7 == "" { refused++; next }
  {
    n++; error[n] = size($9); without[n] = size($11); whole[n] = size(1 - $12 / $13)
    same += $14 == $15
    printf "| %s | %s | %d | %s | %s | %s | %.1f | %.1f | %+.1f %% | %.3f | %+.1f %% | %s | %s %+.1f |\n", $1, $2, $3, $4, $5, $6, 1000 * $7, 1000 * $8, 100 * $9, $10, 100 * $11,
      $14 == $15 ? "yes" : "NO", $16, 1000 * $17
  }
  END {
    if (!n) exit
    printf "\n%d plans; %d more have no plan within their limit. %d peaks are as predicted.\n", n, refused, same
    printf "Steps: median error %.1f %%", 100 * median(error, n); printf ", worst %.1f %%", 100 * error[n]
    printf "; without drift %.1f %%", 100 * median(without, n); printf ", worst %.1f %%.\n", 100 * without[n]
    printf "Whole runs, with their first and last steps: median error %.1f %%", 100 * median(whole, n); printf ", worst %.1f %%.\n", 100 * whole[n]
  }' "$csv"
