#!/usr/bin/env bash
# Trains a language model with PyTorch, and with every kind of weight versions, by AdamW and by Muon, three seeds each, from the same
# weights and on the same batches, and writes tables: the loss on held-out text, and the peak; and before that the loss of another seed at
# some learning rates. Fails when the limit changes a bit, or where AdamW's loss is more than 1 % away from PyTorch's. Runs whose results
# are in the folder are not made again. usage: bench/research/text-versions.sh bin/plimsoll PYTHON out/text-versions [STEPS]
set -euo pipefail
plimsoll=$1 python=$2 out=$3 steps=${4:-400} limit=35%
here=$(cd "$(dirname "$0")/peers" && pwd)
mkdir -p "$out"
model=(-m gpt2-4-64 --data opticks --length 64 --debug threads=1 --weight-decay 0.01 --option optimizer.decay=all)
optimizers=(adamw muon)
declare -A rate=([adamw]=0.002 [muon]=0.016) title=([adamw]=AdamW [muon]=Muon)
rates=(0.001 0.002 0.004 0.008 0.016 0.032)
ways=(alone together stash double)

# arguments WAY: how to train; sets args. A way that is together makes an update of 4 batches of 16, as 2BW does.
arguments() {
  args=(--batch 16 --steps "$steps")
  case $1 in
    alone) args+=(--strategy store-all) ;;
    limit) args+=(--strategy auto --memory "$limit") ;;
    flush) args+=(--devices "cpu*4" --strategy 1f1b-flush --microbatches 4) ;;
    together) args=(--batch 64 --steps $((steps / 4)) --devices "cpu*4" --strategy 1f1b-flush --microbatches 4) ;;
    stash) args+=(--devices "cpu*4" --strategy "1f1b*" --versions stash) ;;
    double) args+=(--devices "cpu*4" --strategy "1f1b*" --versions double_buffered) ;;
  esac
}

# run WAY NAME ARGS...: one run, of which the summary is NAME
run() {
  local to=$out/$2.json args
  arguments "$1"
  shift 2
  [ -s "$to" ] && return
  "$plimsoll" train "${model[@]}" "${args[@]}" --json --quiet "$@" >"$to.tmp"
  mv "$to.tmp" "$to"
}

# torch OPTIMIZER SEED
torch() {
  local to=$out/$1-torch-$2.json
  [ -s "$to" ] && return
  "$python" "$here/src/torch_learn.py" train "$out/$2/first.safetensors" "$out/$2" --blocks 4 --optimizer "$1" --rate "${rate[$1]}" >"$to.tmp"
  mv "$to.tmp" "$to"
}

# field NAME FIELD: a number or text of a run's summary
field() { sed -n "s/.*\"$2\": *\"\{0,1\}\([0-9a-z.e+-]*\)\"\{0,1\}.*/\1/p" "$out/$1.json" | head -1; }

# row OPTIMIZER WAY TEXT: a line of the table
row() {
  local seed
  for seed in 1 2 3; do
    echo "$(field "$1-$2-$seed" test_loss) $(field "$1-$2-$seed" measured_peak_bytes)"
  done | awk -v text="$3" -v optimizer="${title[$1]}" '
    { loss += $1; per = per (NR > 1 ? ", " : "") sprintf("%.6f", $1); peak = $2 ? sprintf("%.2f MiB", $2 / 1048576) : "" }
    END { printf "| %s | %s | %s | %.6f | %s |\n", optimizer, text, per, loss / NR, peak }'
}

# sweep OPTIMIZER: lines of the table of rates
sweep() {
  local r w
  for r in "${rates[@]}"; do
    printf '| %s | %s |' "${title[$1]}" "$r"
    for w in "${ways[@]}"; do printf ' %.4f |' "$(field "$1-$w-4-$r" test_loss)"; done
    echo
  done
}

for seed in 1 2 3; do
  mkdir -p "$out/$seed"
  [ -s "$out/$seed/first.safetensors" ] && continue
  go run -C "$here" ./batches -length 64 -batch 16 -steps "$steps" -seed "$seed" -out "$(realpath "$out/$seed")"
  "$python" "$here/src/torch_learn.py" draw "$out/$seed/first.safetensors" --blocks 4 --seed "$seed"
done
for o in "${optimizers[@]}"; do
  for seed in 1 2 3; do
    torch "$o" "$seed"
    for w in alone limit flush together stash double; do
      run "$w" "$o-$w-$seed" --optimizer "$o" --lr "${rate[$o]}" --seed "$seed" --init "$out/$seed/first.safetensors"
    done
    [ "$(field "$o-alone-$seed" weights_sha256)" = "$(field "$o-limit-$seed" weights_sha256)" ] || { echo "text-versions.sh: other weights under a limit, $o, seed $seed" >&2; exit 1; }
    [ "$o" = muon ] || awk "BEGIN { r = $(field "$o-alone-$seed" test_loss) / $(field "$o-torch-$seed" test_loss); exit !(r > 0.99 && r < 1.01) }" || { echo "text-versions.sh: PyTorch has another loss, seed $seed" >&2; exit 1; }
  done
  for w in "${ways[@]}"; do
    for r in "${rates[@]}"; do run "$w" "$o-$w-4-$r" --optimizer "$o" --lr "$r" --seed 4; done
  done
done
{
  echo "# Weight versions and the loss of a language model"
  echo
  echo "Question: what do old weights cost a language model?"
  echo
  echo "    make text-versions"
  echo
  echo "\`${model[*]} --batch 16 --steps $steps\`, with AdamW at a rate of ${rate[adamw]} or Muon at ${rate[muon]}, on one device and on \`cpu*4\`,"
  echo "seeds 1 to 3, commit $(git rev-parse --short HEAD). A loss is the cross entropy of a byte of held-out text after $steps batches. The peak is the highest"
  echo "of all devices. All of a seed begin with the same weights and read the same batches. Stash updates after every batch with weights up to 3"
  echo "steps old, 2BW after 4 batches with weights of an update before. \"Flush, 4 batches of 16 in an update\" has the updates of 2BW without"
  echo "delay. PyTorch's Muon iterates in bfloat16, with the scale of AdamW's updates."
  echo
  echo "| optimizer | weights | loss by seed | mean | peak |"
  echo "|---|---|---|---:|---:|"
  for o in "${optimizers[@]}"; do
    row "$o" torch "PyTorch $(field "$o-torch-1" torch)"
    row "$o" alone "one device, store-all"
    row "$o" limit "one device, $limit of its peak"
    row "$o" flush "flush, 4 microbatches of 4"
    row "$o" together "flush, 4 batches of 16 in an update"
    row "$o" stash "stash"
    row "$o" double "double buffered (2BW)"
  done
  echo
  echo "## Learning rates"
  echo
  echo "The rates above are those of the least loss on one device with seed 4, which begins with weights of its own:"
  echo
  echo "| optimizer | learning rate | one device | flush, 4 batches of 16 in an update | stash | double buffered (2BW) |"
  echo "|---|---:|---:|---:|---:|---:|"
  for o in "${optimizers[@]}"; do sweep "$o"; done
} >"$out/text-versions.md.tmp"
mv "$out/text-versions.md.tmp" "$out/text-versions.md"
cat "$out/text-versions.md"
