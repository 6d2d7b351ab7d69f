#!/usr/bin/env bash
# Trains everything in a list with two builds of plimsoll, side by side, and compares the weights at the end, bit for bit.
# Both plan from the same measured chains, which the first build makes. Weights do not decay, for builds differ in which ones do by
# default. Exits with 1 when any two differ.
#
#   bench/same-weights.sh OLD NEW [LIST]
# Flags are written as both builds know them: old ones, until no build is compared that lacks --option and --debug.
set -euo pipefail
old=$1 new=$2 list=${3:-$(dirname "$0")/same-weights.txt}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
chains=0 runs=0 differ=0 model=() batch=

# weights BUILD NAME FLAG...: the hash at the end of a run in a folder of its own
weights() {
  local build=$1 name=$2
  shift 2
  if ! "$build" train --quiet --json --data digits --threads 1 --weight-decay 0 --out "$out/$name" "${model[@]}" "$@" >"$out/$name.json" 2>"$out/$name.err"; then
    tail -c 300 "$out/$name.json" "$out/$name.err" | tr '\n' ' '
    return
  fi
  sed -n 's/.*"weights_sha256": *"\([0-9a-f]*\)".*/\1/p' "$out/$name.json"
}

while read -r -a flags; do
  first=${flags[0]-}
  case $first in
  "" | "#"*) continue ;;
  chain)
    chains=$((chains + 1)) batch=${flags[1]} model=("${flags[@]:2}")
    "$old" profile --halves --quiet --data digits --threads 1 "${model[@]}" --batch "$batch" -o "$out/chain$chains.json" >/dev/null
    continue
    ;;
  esac
  steps=6 resume=()
  images=$batch
  [[ " ${flags[*]} " =~ \ --(microbatches|accumulate)\ ([0-9]+)\  ]] && images=$((batch * BASH_REMATCH[2]))
  if [ "$first" = then ]; then
    flags=("${flags[@]:1}") steps=12 resume=(--resume)
  else
    runs=$((runs + 1))
  fi
  set -- --batch "$images" --profile "$out/chain$chains.json" --steps $steps "${resume[@]}" "${flags[@]}"
  a=$(weights "$old" "old$runs" "$@") b=$(weights "$new" "new$runs" "$@")
  if [ "$a" = "$b" ] && [[ $a =~ ^[0-9a-f]{64}$ ]]; then
    echo "same ${a:0:8} ${model[*]} ${flags[*]} ${resume[*]}"
  else
    differ=$((differ + 1))
    echo "DIFFER ${model[*]} ${flags[*]} ${resume[*]}"
    echo "  $old: $a"
    echo "  $new: $b"
  fi
done <"$list"
echo "$runs runs, $differ differ"
[ "$differ" = 0 ]
