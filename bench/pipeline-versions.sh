#!/usr/bin/env bash
# Trains one model with every kind of weight versions, three seeds each, and writes a table: accuracy at the end, images until
# 95 %, and the time that takes by the plan. usage: bench/pipeline-versions.sh bin/plimsoll out/pipeline-versions
set -euo pipefail
plimsoll=$1 out=$2
mkdir -p "$out"
model=(-m resnet20 --data glyphs --image 16 --devices "cpu*4" --debug threads=1 --lr 0.05 --lr-schedule cosine)
images=25600 every=1600 # images of a run, and between evaluations

# run NAME BATCH ARGS...: three seeds of one way to train
run() {
  local name=$1 batch=$2 seed
  shift 2
  for seed in 1 2 3; do
    "$plimsoll" train "${model[@]}" --seed "$seed" --batch "$batch" --steps $((images / batch)) --eval-every $((every / batch)) \
      --json "$@" >"$out/$name-$seed.json" 2>"$out/$name-$seed.log"
  done
}

# field NAME SEED FIELD: a number of a run's summary
field() { grep -o "\"$3\": [0-9.e+-]*" "$out/$1-$2.json" | head -1 | cut -d' ' -f2; }

# reached NAME SEED BATCH: images until an evaluation gives 95 %
reached() {
  sed -n 's/^after \([0-9]*\) steps: .*accuracy \([0-9.]*\)%.*/\1 \2/p' "$out/$1-$2.log" | awk -v b="$3" '$2 >= 95 { print $1 * b; exit }'
}

# row TEXT NAME BATCH: a line of the table
row() {
  local seed
  for seed in 1 2 3; do
    echo "$(field "$2" $seed accuracy) $(reached "$2" $seed "$3") $(field "$2" $seed predicted_s_per_step) $(field "$2" $seed predicted_peak_bytes)"
  done | awk -v text="$1" -v b="$3" '
    { acc += $1; images += $2; time += $2 / b * $3; peak = $4; per = per (NR > 1 ? ", " : "") sprintf("%.2f", 100 * $1); step = $3 }
    END { printf "| %s | %s | %.2f %% | %d | %.2f ms | %.2f s | %.2f MiB |\n", text, per, 100 * acc / NR, images / NR, 1e3 * step * 32 / b, time / NR, peak / 1048576 }'
}

run flush 32 --strategy 1f1b-flush --microbatches 4
run stash 32 --strategy "1f1b*" --versions stash
run stash8 8 --strategy "1f1b*" --versions stash
run double 8 --strategy "1f1b*" --versions double_buffered
run latest 8 --strategy "1f1b*" --versions latest
{
  echo "# Weight versions and accuracy"
  echo
  echo "resnet20 on glyphs (16x16, 62 classes), 25600 images, four stages on \`cpu*4\`, seeds 1 to 3. Accuracy is on 1984 held-out images. The time"
  echo "is that of the plan, for devices of their own: the parts of \`cpu*4\` share one machine. The peak is that of the device with the highest."
  echo "Made by \`make pipeline-versions\` at commit $(git rev-parse --short HEAD)."
  echo
  echo "| weights | accuracy by seed, % | mean | images until 95 % | time of 32 images | time until 95 % | peak |"
  echo "|---|---|---:|---:|---:|---:|---:|"
  row "flush, 4 microbatches of 8" flush 32
  row "stash, minibatches of 32" stash 32
  row "stash, minibatches of 8" stash8 8
  row "double buffered, 4 minibatches of 8 an update" double 8
  row "latest, minibatches of 8" latest 8
} >"$out/pipeline-versions.md.tmp"
mv "$out/pipeline-versions.md.tmp" "$out/pipeline-versions.md"
cat "$out/pipeline-versions.md"
