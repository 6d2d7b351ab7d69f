#!/bin/sh
# Runs plans that recompute, offload and do both on the CPU device: two networks, five limits, three bandwidths, five strategies.
# Every row is trained beside store-all: peaks must be equal to the byte and results to the bit, or this fails. Then once more with
# delays of the streams at random, where bits must not change either. The kernels use one core, so that copies have another, as
# a GPU has engines for them, and at 1 GB/s both as well, where copies take turns with them. Each grid also prints what its median error
# would be if copies and ops took nothing from each other, of the same steps. Takes ten to twenty minutes on two cores; times want a quiet machine.
# FAST=1 runs densenet121 at 1 GB/s at two limits alone, in a minute.
#
#   bench/validate-offload.sh PLIMSOLL FOLDER
set -eu
plimsoll=$1 out=$2
strategies=rotor,offload-dynprog,pofo,autocapper,auto
bandwidths="500MB/s 1GB/s 2GB/s"
threads=1
status=0

# one NAME FLAG...: a grid with its table, page and trace in a folder.
one() {
    grid=$out/$1
    echo "== $1"
    shift
    mkdir -p "$grid"
    "$plimsoll" validate -v "$@" --debug threads="$threads" --strategy $strategies --option sgd.momentum=0 --seed 1 --out "$grid" >"$grid/table.txt" 2>"$grid/errors.txt" || status=1
    grep -E 'median error|worst error|times the costs' "$grid/table.txt" || true
    cat "$grid/errors.txt"
}

# Limits are shares of store-all's peak, most of which are ResNet-101's weights.
resnet="-m resnet101 --image 32 --batch 16 --memory 98%,96.5%,95%,93.5%,92%"
densenet="-m densenet121 --image 32 --batch 16 --memory 95%,90%,85%,80%,75%"

if [ -n "${FAST:-}" ]; then
    one densenet121-fast -m densenet121 --image 32 --batch 16 --memory 90%,80% --bandwidth 1GB/s --steps 9
    exit $status
fi

for bandwidth in $bandwidths; do
    name=$(echo "$bandwidth" | tr -d /)
    one "densenet121-$name" $densenet --bandwidth "$bandwidth" --steps 9
    one "resnet101-$name" $resnet --bandwidth "$bandwidth" --steps 4
done
threads=2
one densenet121-1GBs-two-cores $densenet --bandwidth 1GB/s --steps 9
one resnet101-1GBs-two-cores $resnet --bandwidth 1GB/s --steps 4
threads=1
one resnet101-chaos -m resnet101 --image 32 --batch 16 --memory 96%,93% --bandwidth 1GB/s --steps 1 --debug chaos=1
one densenet121-chaos $densenet --bandwidth 500MB/s --steps 2 --debug chaos=1

# The rows of all grids, of which bench/results/validate-offload.csv has those of a quiet machine.
{
    echo grid,strategy,share_percent,limit,predicted_peak,measured_peak,predicted_time,measured_time,error,images_per_s,identical
    for table in "$out"/*/table.txt; do
        awk -F '  +' -v grid="$(basename "$(dirname "$table")")" -v OFS=, '$NF ~ /^(yes|no)$/ && NF == 10 { sub(/ %$/, "", $2); $1 = $1; print grid, $0 }' "$table"
    done
} >"$out/rows.csv"
exit $status
