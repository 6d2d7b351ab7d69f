#!/usr/bin/env bash
# Trains a language model with PyTorch, and with every kind of weight versions, three seeds each, from the same weights and on the same
# batches, and writes a table: the loss on held-out text, and the peak. Fails when the limit changes a bit, or where PyTorch's loss is more
# than 1 % away. usage: bench/text-versions.sh bin/plimsoll PYTHON out/text-versions [STEPS]
set -euo pipefail
plimsoll=$1 python=$2 out=$3 steps=${4:-400} limit=35%
here=$(cd "$(dirname "$0")/peers" && pwd)
mkdir -p "$out"
model=(-m gpt2-4-64 --data opticks --length 64 --batch 16 --threads 1 --optimizer adamw --lr 0.002 --weight-decay 0.01 --steps "$steps")

# run NAME ARGS...: three seeds of one way to train
run() {
  local name=$1 seed
  shift
  for seed in 1 2 3; do
    "$plimsoll" train "${model[@]}" --seed "$seed" --init "$out/$seed/first.safetensors" --json --quiet "$@" >"$out/$name-$seed.json"
  done
}

# field NAME SEED FIELD: a number or text of a run's summary
field() { sed -n "s/.*\"$3\": *\"\{0,1\}\([0-9a-z.e+-]*\)\"\{0,1\}.*/\1/p" "$out/$1-$2.json" | head -1; }

# row TEXT NAME: a line of the table
row() {
  local seed
  for seed in 1 2 3; do
    echo "$(field "$2" $seed test_loss) $(field "$2" $seed measured_peak_bytes)"
  done | awk -v text="$1" '
    { loss += $1; per = per (NR > 1 ? ", " : "") sprintf("%.6f", $1); peak = $2 ? sprintf("%.2f MiB", $2 / 1048576) : "" }
    END { printf "| %s | %s | %.6f | %s |\n", text, per, loss / NR, peak }'
}

for seed in 1 2 3; do
  mkdir -p "$out/$seed"
  go run "$here/batches" -length 64 -batch 16 -steps "$steps" -seed "$seed" -out "$out/$seed"
  "$python" "$here/src/torch_learn.py" draw "$out/$seed/first.safetensors" --blocks 4 --seed "$seed"
  "$python" "$here/src/torch_learn.py" train "$out/$seed/first.safetensors" "$out/$seed" --blocks 4 >"$out/torch-$seed.json"
done
run alone --strategy store-all
run limit --strategy auto --memory "$limit"
for seed in 1 2 3; do
  [ "$(field alone $seed weights_sha256)" = "$(field limit $seed weights_sha256)" ] || { echo "text-versions.sh: other weights under a limit, seed $seed" >&2; exit 1; }
  awk "BEGIN { r = $(field alone $seed test_loss) / $(field torch $seed test_loss); exit !(r > 0.99 && r < 1.01) }" || { echo "text-versions.sh: PyTorch has another loss, seed $seed" >&2; exit 1; }
done
run flush --devices "cpu*4" --strategy 1f1b-flush --microbatches 4
run stash --devices "cpu*4" --strategy "1f1b*" --versions stash
run double --devices "cpu*4" --strategy "1f1b*" --versions double_buffered
{
  echo "# Weight versions and the loss of a language model"
  echo
  echo "    ${model[*]}"
  echo
  echo "on one device and on \`cpu*4\`, seeds 1 to 3: the loss (cross entropy of a byte, held-out text) after $steps steps of AdamW, and the peak of the"
  echo "device with the highest. All of a seed begin with the same weights and read the same batches. The weights under the limit are those without"
  echo "one, bit for bit. Stash updates after every batch of 16 with weights that are up to 3 steps old, 2BW after 4 batches. Made by"
  echo "\`make text-versions\` at commit $(git rev-parse --short HEAD)."
  echo
  echo "| weights | loss by seed | mean | peak |"
  echo "|---|---|---:|---:|"
  row "PyTorch $(field torch 1 torch)" torch
  row "one device, store-all" alone
  row "one device, $limit of its peak" limit
  row "flush, 4 microbatches of 4" flush
  row "stash" stash
  row "double buffered (2BW)" double
} >"$out/text-versions.md.tmp"
mv "$out/text-versions.md.tmp" "$out/text-versions.md"
cat "$out/text-versions.md"
