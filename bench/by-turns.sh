#!/usr/bin/env bash
# Trains with two builds of plimsoll by turns, and prints what a step takes with each: the medians over the turns of the tenth, of the
# quarter and of the half of a run's steps that are fastest, and of the ratios of the pairs. Machines that others use slow steps down, never
# up: the faster ones say more of the builds. Both plan from the same measured chain, which the first build makes.
#
#   bench/by-turns.sh OLD NEW TURNS FLAG...    FLAG...: of `plimsoll train`, the model and the strategy among them
# Flags are written as both builds know them: old ones, until no build is compared that lacks --option and --debug.
set -euo pipefail
old=$1 new=$2 turns=$3
shift 3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# run BUILD: prints the quantiles of the steps of a run, ms
run() {
  rm -rf "$out/run"
  "$1" train --quiet --no-cache --profile "$out/chain.json" --out "$out/run" "${@:2}" >/dev/null
  sed -n '/"sequence_s":/s/.*"seconds":\([0-9.e+-]*\).*/\1/p' "$out/run/log.jsonl" | sort -g | awk '{ v[NR] = 1e3 * $1 } END { if (!NR) exit 1; print v[int(NR / 10) + 1], v[int(NR / 4) + 1], v[int(NR / 2) + 1] }'
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

"$old" train --quiet --no-cache --out "$out/run" "$@" --steps 2 >/dev/null
cp "$out/run/chain.json" "$out"
for _ in $(seq "$turns"); do
  run "$old" "$@" >>"$out/old"
  run "$new" "$@" >>"$out/new"
done
echo "| steps | old | new | new / old | of the pairs |"
echo "|---|---:|---:|---:|---|"
for i in 1 2 3; do
  paste "$out/old" "$out/new" | awk -v i=$i '{ print $(i + 3) / $i }' >"$out/ratios"
  printf '| %s fastest | %.1f ms | %.1f ms | %.3f | %s |\n' "$(sed -n "${i}p" <<<$'tenth\nquarter\nhalf')" "$(awk -v i=$i '{ print $i }' "$out/old" | median)" \
    "$(awk -v i=$i '{ print $i }' "$out/new" | median)" "$(median <"$out/ratios")" "$(sort -g "$out/ratios" | sed -n '1p;$p' | xargs printf '%.3f to %.3f')"
done
