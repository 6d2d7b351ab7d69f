#!/usr/bin/env bash
# Counts what one core does for a convolution, batch 8, ours beside oneDNN's, in valgrind's simulation of a processor with AVX2, a
# first-level cache of 32 KiB and a second-level one of 1 MiB (8 ways each, lines of 64 bytes, nothing fetched ahead): instructions,
# values read, and lines that were in neither cache, for each multiplication of 8 values that a convolution with zeros around its
# image needs. Nothing is timed, so what else the machine does changes nothing. Minutes for a line.
#
#   bench/peers/counters.sh CPU_TEST ONEDNN    go test -c -o CPU_TEST ./kernels/cpu; ONEDNN as make bench-peers builds it
set -euo pipefail
ours=$1 onednn=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
simulate=(valgrind --tool=cachegrind --cache-sim=yes --D1=32768,8,64 --LL=1048576,8,64)

# count FILE OF: adds up the columns Ir, Dr + Dw, D1mr + D1mw, DLmr + DLmw of a file of cachegrind's: "ours" those of our kernels in C, "all" of
# code without a name, which is what oneDNN compiles as it runs
count() {
  awk -v of="$2" '
    /^fl=/ { file = substr($0, 4) }
    /^fn=/ { name = substr($0, 4); if (of == "ours") use = (file ~ /kernels\/cpu\/[a-z0-9_]*\.[ch]$/ || file ~ /intrin\.h$/) && name != "peak"; else use = name == "???" }
    /^[0-9]/ && use { i += $2; d += $5 + $8; one += $6 + $9; two += $7 + $10 }
    END { print i, d, one, two }' "$1"
}

echo "| convolution (batch 8), forward | products of 8, millions | | instructions | reads and writes | not in the first level | nor in the second |"
echo "|---|---:|---|---:|---:|---:|---:|"
while read -r from to kernel stride size; do
  image=$((size / stride))
  products=$((2 * 8 * image * image * to * kernel * kernel * from / 16))
  "${simulate[@]}" --cachegrind-out-file="$out/ours" "$ours" -test.run '^$' -test.benchtime 1x \
    -test.bench "Conv/${size}x${size}/$from-$to/k${kernel}s$stride/^forward\$/threads=1\$" >/dev/null 2>&1
  echo "8 $size $from $to $kernel $stride forward 0 0" | OMP_NUM_THREADS=1 "${simulate[@]}" --cachegrind-out-file="$out/peer" "$onednn" >/dev/null 2>&1
  for who in ours oneDNN; do
    [ $who = ours ] && counts=$(count "$out/ours" ours) || counts=$(count "$out/peer" all)
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
