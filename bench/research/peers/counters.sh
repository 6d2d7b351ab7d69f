#!/usr/bin/env bash
# Counts what one core does for a convolution, batch 8, ours beside oneDNN's, in valgrind's simulation of a processor with AVX2, a
# first-level cache of 32 KiB and a second-level one of 1 MiB (8 ways each, lines of 64 bytes, nothing fetched ahead): instructions,
# reads and writes, and those that the first level did not have, nor the second, for each multiplication of 8 values that a convolution
# with zeros around its image takes. Who leaves products with zeros out has less of everything. Ours are all functions of the kernels,
# packed weights included; oneDNN's all code without a name, which it compiles as it runs, a second run less the first. Nothing is timed, so
# what else the machine does changes nothing. Minutes for a line.
#
#   bench/research/peers/counters.sh CPU_TEST ONEDNN    go test -c -o CPU_TEST ./kernels/cpu; ONEDNN as make bench-peers builds it
set -euo pipefail
ours=$1 onednn=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
simulate=(valgrind --tool=cachegrind --cache-sim=yes --D1=32768,8,64 --LL=1048576,8,64)

# quietly COMMAND...: shows what it printed if it fails
quietly() {
  "$@" >"$out/printed" 2>&1 || { cat "$out/printed" >&2; exit 1; }
}

# count FILE OF: adds up the columns Ir, Dr + Dw, D1mr + D1mw, DLmr + DLmw of a file of cachegrind's: "ours" or "oneDNN"
count() {
  awk -v of="$2" '
    /^fl=/ { file = substr($0, 4) }
    /^fn=/ { name = substr($0, 4); if (of == "ours") use = (file ~ /kernels\/cpu\/[a-z0-9_]*\.[ch]$/ || file ~ /intrin\.h$/) && name != "peak"; else use = name == "???" }
    /^[0-9]/ && use { i += $2; d += $5 + $8; one += $6 + $9; two += $7 + $10 }
    END { if (!i) exit 1; print i, d, one, two }' "$1"
}

echo "| convolution (batch 8), forward | products of 8, millions | | instructions | reads and writes | not in the first level | nor in the second |"
echo "|---|---:|---|---:|---:|---:|---:|"
while read -r from to kernel stride size; do
  image=$((size / stride))
  products=$((2 * 8 * image * image * to * kernel * kernel * from / 16))
  quietly "${simulate[@]}" --cachegrind-out-file="$out/ours" "$ours" -test.run '^$' -test.benchtime 1x \
    -test.bench "Conv/${size}x${size}/$from-$to/k${kernel}s$stride/^forward\$/threads=1\$" </dev/null
  for warm in 0 1e-9; do # one run, and two
    echo "8 $size $from $to $kernel $stride forward $warm 0" >"$out/question"
    OMP_NUM_THREADS=1 quietly "${simulate[@]}" --cachegrind-out-file="$out/peer$warm" "$onednn" <"$out/question"
  done
  for who in ours oneDNN; do
    if [ $who = ours ]; then
      counts=$(count "$out/ours" ours)
    else
      counts=$(echo "$(count "$out/peer1e-9" oneDNN) $(count "$out/peer0" oneDNN)" | awk '{ print $1 - $5, $2 - $6, $3 - $7, $4 - $8 }')
    fi
    echo "$counts" | awk -v what="${size}x${size} $from-$to k$kernel s$stride" -v n="$products" -v who=$who \
      '{ printf "| %s | %.0f | %s | %.2f | %.2f | %.4f | %.4f |\n", what, n / 1e6, who, $1 / n, $2 / n, $3 / n, $4 / n }'
  done
done <<'SHAPES'
3 64 7 2 224
64 64 3 1 56
128 128 3 1 28
512 512 3 1 7
512 2048 1 1 7
SHAPES
