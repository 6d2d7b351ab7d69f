#!/usr/bin/env bash
# Prints, as a table, tokens per second that llm.c and LLM.Q publish beside what a step of the same shape is estimated to take here, on one
# described GPU, where everything is stored. The batch is the largest power of two, at most the published one, that fits. Needs jq.
#
#   bench/published.sh                # into bench/results/published.md, behind its words
#   PLIMSOLL=bin/plimsoll             # the program
set -euo pipefail
cd "$(dirname "$0")/.."
plimsoll=${PLIMSOLL:-bin/plimsoll}

# row NAME GPU_NAME DEVICE MODEL CLASSES BATCH PUBLISHED prints a row; PUBLISHED is tokens per second of one GPU.
row() {
  local name=$1 gpu=$2 device=$3 model=$4 classes=$5 most=$6 published=$7 batch plan cell="does not fit | |"
  for ((batch = most; batch >= 1; batch /= 2)); do
    plan=$("$plimsoll" plan --device "$device" --json -q -m "$model" --length 1024 --classes "$classes" --dtype bf16 --optimizer adamw \
      --batch "$batch" --strategy store-all 2>/dev/null) || continue
    cell=$(jq -r --argjson batch "$batch" --argjson published "$published" \
      '.step_s as $s | ($batch * 1024 / $s) as $rate | "\($batch) | \($rate | round) | \($rate / $published * 100 | round / 100)"' <<<"$plan")
    break
  done
  echo "| $name | $gpu | $most | $published | $cell |"
}

echo "| configuration | GPU | batch | published, tokens/s of a GPU | our batch | ours, estimated | ratio |"
echo "|---|---|---:|---:|---:|---:|---:|"
row "llm.c, GPT-2 124M" "A100, one of 8" a100 gpt2 50257 64 218453
row "llm.c, GPT-2 350M" "A100, one of 8" a100 gpt2-medium 50257 64 79922
row "llm.c, GPT-2 774M" "A100, one of 8" a100 gpt2-large 50257 32 38551
row "llm.c, GPT-2 1558M" "H100, one of 8" h100 gpt2-xl 50257 16 46811
row "LLM.Q, 0.5B" "H100" h100 llama-24-896-14-2-4864-tied 151936 32 149000
row "LLM.Q, 1.5B" "H100" h100 llama-28-1536-12-2-8960-tied 151936 32 58710
row "LLM.Q, 3B" "H100" h100 llama-36-2048-16-2-11008-tied 151936 16 30958
row "LLM.Q, 0.5B" "RTX 4090" rtx4090 llama-24-896-14-2-4864-tied 151936 16 39842
row "LLM.Q, 1.5B" "RTX 4090" rtx4090 llama-28-1536-12-2-8960-tied 151936 4 14063
row "LLM.Q, 3B" "RTX 4090" rtx4090 llama-36-2048-16-2-11008-tied 151936 4 7001
