#!/usr/bin/env bash
# Estimates what LLM.Q's published configurations take by the plan that its switches describe, and by the plan that is found here, on described
# devices, beside the tokens per second that were published. All but those is simulated. Needs jq.
#
#   bench/llmq.sh [CONFIGURATION]     # all, or 7b-rtx4090, 14b-rtx4090, 7b-h100, 14b-h100
#   PLIMSOLL=bin/plimsoll LIMIT=600   # the program, and the seconds that a search may take
set -euo pipefail
cd "$(dirname "$0")/.."
plimsoll=${PLIMSOLL:-bin/plimsoll} limit=${LIMIT:-600}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The filter makes weights, gradients and both moments two bytes an element, and computes the head and the loss in chunks, as LLM.Q does.
halve='def half: if . == null then null else (. / 2 | floor) end;
  def chunk: (. / $chunks | floor);
  (.layers | length) as $n
  | .layers |= [to_entries[] | .key as $k | .value
    | .weight_bytes |= half
    | (if has("weight_gradient_bytes") then .weight_gradient_bytes |= half else . end)
    | (if has("state_bytes") then .state_bytes |= half else . end)
    | (if has("update_s") then .update_s |= . / 2 else . end)
    | (if has("host_update_s") then .host_update_s |= . / 2 else . end)
    | (if $k >= $n - 2 then .saved_bytes = .saved_bytes - .output_bytes + (.output_bytes | chunk) | .output_bytes |= chunk | .gradient_bytes |= chunk
        | .backward_overhead_bytes |= chunk | .forward_overhead_bytes |= chunk | .discard_overhead_bytes |= chunk else . end)]'

# sequence LAYERS MICROBATCHES SWITCHES prints the ops of the plan that the switches describe, one a line. Layer 1 is the embedding, then
# each block is two layers, then come the head and the loss.
sequence() {
  awk -v n="$1" -v batches="$2" -v switches=" $3 " '
    function op(kind, layer, m) { printf "{\"op\":\"%s\",\"layer\":%d%s}\n", kind, layer, m ? ",\"microbatch\":" m : "" }
    function has(name) { return index(switches, " " name " ") > 0 }
    function fetch(l) { if (has("weights") && l >= 1 && l < n) op("fetch_weights", l) }
    function drop(l) { if (has("weights") && l >= 1 && l < n) op("drop_weights", l) }
    BEGIN {
      for (m = 1; m <= batches; m++) {
        fetch(1)
        for (l = 1; l < n; l++) {
          fetch(l + 1)
          block = l > 1 && l < n - 1 && has("block")
          if (l > 1 && l < n - 1 && l % 2 == 0 && has("residual")) op("offload", l, m)
          ffn = l > 1 && l < n - 1 && l % 2 && has("ffn")
          op(ffn ? "forward_checkpoint" : !block ? "forward_all" : l % 2 ? "forward_discard" : "forward_checkpoint", l, m)
          drop(l)
        }
        op("forward_all", n, m); op("backward", n, m)
        fetch(n - 1)
        if (has("gradients") && m > 1) op("fetch_gradient", n - 1)
        op("backward", n - 1, m); drop(n - 1)
        if (has("gradients")) op("offload_gradient", n - 1)
        for (b = n - 3; b >= 2; b -= 2) {
          if (b == n - 3) { fetch(b); fetch(b + 1); if (has("residual")) op("prefetch", b, m) }
          if (b > 2) { fetch(b - 2); fetch(b - 1); if (has("residual")) op("prefetch", b - 2, m) } else fetch(1)
          if (has("gradients") && m > 1) { op("fetch_gradient", b); op("fetch_gradient", b + 1) }
          if (has("block")) op("forward_all", b, m)
          if (has("block") || has("ffn")) op("forward_all", b + 1, m)
          for (l = b + 1; l >= b; l--) { op("backward", l, m); drop(l); if (has("gradients")) op("offload_gradient", l) }
        }
        if (has("gradients") && m > 1) op("fetch_gradient", 1)
        op("backward", 1, m); drop(1)
        if (has("gradients")) op("offload_gradient", 1)
      }
      for (l = 1; l < n; l++) {
        fetch(l); if (has("moments")) op("fetch_state", l)
        if (has("gradients")) op("fetch_gradient", l)
        op("update", l)
        if (has("weights")) { op("write_weights", l); op("drop_weights", l) }
        if (has("moments")) { op("write_state", l); op("drop_state", l) }
      }
    }'
}

# simulate LAYERS MICROBATCHES SWITCHES CHAIN writes what LLM.Q's plan of so many microbatches takes.
simulate() {
  sequence "$1" "$2" "$3" | jq -cs --slurpfile c "$4" --argjson memory "$memory" '{format: "plimsoll.plan/v1", chain: $c[0].name,
    strategy: "LLM.Q", memory_bytes: $memory, bandwidth_bytes_per_s: $c[0].bandwidth_bytes_per_s, duplex: true, ops: .}' >"$work/p.json"
  "$plimsoll" check -q -c "$4" -p "$work/p.json" --json || true
}

# rate FIGURES TOKENS prints tokens per second, and the peak.
rate() { jq -r --argjson tokens "$2" 'if .makespan_s then "\($tokens / .makespan_s | round) | \(.per_device_peak_bytes[0] / 1e9 * 10 | round / 10) GB" else "none | " end' <<<"${1:-{\}}"; }

# row NAME MODEL DEVICE MEMORY BATCH MICROBATCHES SHORT CHUNKS SWITCHES PUBLISHED prints a row. SHORT is the microbatches of the step that is searched.
row() {
  local name=$1 model=$2 device=$3 memory=$4 batch=$5 batches=$6 short=$7 chunks=$8 switches=$9 published=${10} n whole theirs ours
  "$plimsoll" profile -q -m "$model" --length 1024 --classes 152064 --batch "$batch" --dtype bf16 --optimizer adamw --device "$device" -o "$work/all.json" >/dev/null
  jq -c --argjson chunks "$chunks" "$halve" "$work/all.json" >"$work/c.json"
  n=$(jq '.layers | length' "$work/c.json")
  whole=$(simulate "$n" "$batches" "$switches" "$work/c.json")
  theirs=$(simulate "$n" "$short" "$switches" "$work/c.json")
  ours=$(timeout "$limit" "$plimsoll" plan -q -c "$work/c.json" --memory "$memory" --microbatches "$short" --strategy residency --json || true)
  echo "| $name | $batches x $batch | $published | $(rate "$whole" $((1024 * batch * batches))) | $short x $batch | $(rate "$theirs" $((1024 * batch * short))) | $(rate "$ours" $((1024 * batch * short))) | $(
    jq -rn --argjson a "${theirs:-{\}}" --argjson b "${ours:-{\}}" 'if $a.makespan_s and $b.makespan_s then ($a.makespan_s / $b.makespan_s * 100 | round / 100) else "" end') |"
}

echo "| configuration | step | published, tokens/s | its plan, estimated | peak | shorter step | its plan, estimated | peak | plan found here, estimated | peak | ratio |"
echo "|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|"
configuration() {
  local want=$1
  shift
  if [[ ${only:-$want} == "$want" ]]; then row "$@"; fi
}
only=${1:-}
ada=24743247872    # 24,080 MiB less 483 MiB: a log of LLM.Q on an RTX 4090 (its README)
hopper=83365315215 # 77.64 GiB: bench/results/gpu-h100.md
seven=llama-28-3584-28-4-18944 fourteen=llama-48-5120-40-8-13824
configuration 7b-rtx4090 "7B, RTX 4090" "$seven" rtx4090 $ada 16 32 4 16 "weights moments block residual" 2777
configuration 14b-rtx4090 "14B, RTX 4090" "$fourteen" rtx4090 $ada 32 16 4 32 "weights moments block residual gradients" 1348
configuration 7b-h100 "7B, H100" "$seven" h100 $hopper 2 256 32 2 "" 13863
configuration 14b-h100 "14B, H100" "$fourteen" h100 $hopper 8 64 8 2 "moments ffn residual" 6321
