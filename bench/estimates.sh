#!/usr/bin/env bash
# Prints, as a table, how far estimates for the described H100 are from the steps that were measured on one (bench/results/gpu-h100.md). The
# measured figures stand here as they stand there.
#
#   bench/estimates.sh                # into bench/results/estimates.md, behind its words
#   PLIMSOLL=bin/plimsoll             # the program
set -euo pipefail
cd "$(dirname "$0")/.."
plimsoll=${PLIMSOLL:-bin/plimsoll}

# figure NAME takes a number out of JSON with one field a line.
figure() { sed -n 's/^ *"'"$1"'": \([-+.0-9e]*\),\{0,1\}$/\1/p' | head -n 1; }

# row STEP MEASURED_MS MEASURED_GIB FLAGS... prints a row.
row() {
  local step=$1 measured=$2 peak=$3 plan
  shift 3
  plan=$("$plimsoll" plan --device h100 --json -q "$@")
  awk -v step="$step" -v measured="$measured" -v peak="$peak" -v s="$(figure step_s <<<"$plan")" -v b="$(figure arena_peak_bytes <<<"$plan")" 'BEGIN {
    printf "| %s | %.1f ms | %.1f ms | %+.1f %% | %.3f GiB | %.3f GiB | %+.1f %% |\n", step, 1e3 * s, measured, 100 * (1e3 * s / measured - 1),
      b / 2^30, peak, 100 * (b / 2^30 / peak - 1)
  }'
}

echo "| step | estimated | measured | off | peak, estimated | measured | off |"
echo "|---|---:|---:|---:|---:|---:|---:|"
gpt2=(-m gpt2 --length 1024 --classes 50257 --dtype bf16 --optimizer adamw)
row "GPT-2 124M, 16 x 1024 tokens, store-all" 40.9 9.648 "${gpt2[@]}" --batch 16 --strategy store-all
row "GPT-2 124M, 8 x 1024 tokens, resident" 23.3 5.359 "${gpt2[@]}" --batch 8 --strategy resident
row "GPT-2 124M, 8 x 1024 tokens, residency in 2.680 GiB" 45.4 2.669 "${gpt2[@]}" --batch 8 --strategy residency --memory 2877628088
resnet=(-m resnet101 --image 1000 --classes 1000 --batch 8 --dtype bf16)
row "ResNet-101, 8 images of 1000 pixels, store-all" 78.5 10.18 "${resnet[@]}" --strategy store-all
for limit in "100 79.6 9.789" "85 81.9 8.214" "70 84.1 7.022" "60 85.7 6.125" "50 87.7 5.190" "40 88.3 4.254"; do
  read -r share measured peak <<<"$limit"
  row "ResNet-101, rotor, $share % of activations" "$measured" "$peak" "${resnet[@]}" --strategy rotor \
    --memory "$(awk -v s="$share" 'BEGIN { printf "%.0f", 510.2 * 2^20 + s / 100 * (10.18 * 2^30 - 510.2 * 2^20) }')"
done
