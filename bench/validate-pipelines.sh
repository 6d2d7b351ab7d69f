#!/bin/sh
# Runs pipeline plans on virtual devices of the processor, and writes a page with what was planned and what was measured.
#
# 1. Simulated time: every task takes just the time that it is planned to take, drawn at random, and links are slowed down;
#    with replicas, whose gradients take their time on the links, too.
#    Stages that offload have slow links to host memory, too.
#    Streams, events, messages and drivers are real. That shows how closely the drivers keep to a plan.
# 2. Kernels: every byte of memory and every bit of a step with a flush. The devices share the cores, so their times say
#    nothing about devices of their own.
#
# Takes about ten minutes on two cores. Measured times of kernels want a quiet machine.
#
#   bench/validate-pipelines.sh PLIMSOLL FOLDER PAGE [quick|periods|offload|replicas|kernels]
#
# FOLDER gets tables, pages and traces, PAGE (Markdown) the tables, and PAGE's name with .svg a picture of a run. With quick
# all grids have one small point: it shows that they work. The others measure one section; the page keeps the rest as it is.
set -eu
plimsoll=$1 out=$2 page=$3 mode=${4-}
picture=${page%.md}.svg
devices="cpu*2;cpu*4" draws=3 minibatches=40 host="100MB/s 200MB/s 400MB/s" limits=35%,30%,25%
simulated="1f1b*,madpipe,eager,contiguous"
replicated=joint-flush,chimera synchronized="cpu*2;cpu*4;cpu*8"
flush=gpipe,1f1b-flush,interleaved,looped-bfs,zb-h1,zb-h2,zb-v,chimera
asynchronous="1f1b*,madpipe,contiguous,eager"
if [ "$mode" = quick ]; then
    devices="cpu*2" draws=1 minibatches=4 host=200MB/s limits=35% simulated="1f1b*,eager" replicated=chimera synchronized="cpu*2" flush=gpipe asynchronous="1f1b*"
fi
mkdir -p "$out"
status=0

# one NAME FLAG...: a grid with its folder.
one() {
    name=$1
    shift
    echo "== $name"
    "$plimsoll" validate -m resnet20 --image 16 --data digits --seed 1 --quiet "$@" --out "$out/$name" >"$out/$name.txt" || status=1
    grep -E 'median error|devices were written|beside' "$out/$name.txt" || true
}

# wanted: whether a section is measured.
wanted() { [ "$mode" = "$1" ] || [ -z "$mode" ] || [ "$mode" = quick ]; }

if wanted periods; then
    one simulated --devices "$devices" --batch 4 --strategy "$simulated" --versions stash --simulated --draws $draws --peer-bandwidth 10MB/s \
        --minibatches $minibatches
    one picture --devices "cpu*4" --batch 4 --strategy "1f1b*" --versions stash --simulated --draws 1 --peer-bandwidth 10MB/s --minibatches 8 --svg "$picture"
fi
if wanted offload; then
    for bandwidth in $host; do
        one "offload-$(echo "$bandwidth" | tr -d /)" --image 32 --devices "$devices" --batch 16 --strategy loadline --versions stash --simulated --draws $draws \
            --peer-bandwidth 2GB/s --bandwidth "$bandwidth" --memory $limits --minibatches $minibatches
    done
fi
if wanted replicas; then
    for zero in 0 1; do
        one zero$zero -m resnet110 --devices "$synchronized" --batch 32 --microbatches 8 --strategy "$replicated" --zero $zero --simulated --draws $draws \
            --peer-bandwidth 30MB/s --steps $((minibatches / 8 + 1))
    done
fi
if wanted kernels; then
    one kernels --devices "$devices" --batch 32 --microbatches 8 --strategy "$flush,$asynchronous" --debug threads=1 --steps 2 --minibatches 12
fi

# tables NAME: the tables of a grid, without the note on simulated time, which stands above.
tables() { grep -v '^Simulated time: ' "$out/$1/tables.md" | cat -s; }

# section NAME HEADING: what its function prints, with the commit and the load of the machine, or what the page has of it.
section() {
    if ! wanted "$1"; then
        awk -v heading="## $2" '/^## / { on = $0 == heading } on' "$page"
        return
    fi
    cat <<END
## $2

At commit $(git rev-parse --short HEAD), on $(nproc) cores with a load of $(cut -d ' ' -f 1 /proc/loadavg).

END
    "$1"
}

periods() {
    cat <<END
ResNet-20 with times drawn at random, forward 1 to 8 ms a layer and backward 2 to 16 ms. A draw is a chain. Stashed weights, 10 MB/s between
devices.

END
    tables simulated
    cat <<END

![A run in simulated time]($(basename "$picture"))

END
}

offload() {
    cat <<END
ResNet-20, 32 x 32 pixels, batch 16, with times drawn alike, 2 GB/s between devices. Stages recompute, and offload over slow links to host
memory:

END
    for bandwidth in $host; do
        printf 'With `--bandwidth %s`:\n\n' "$bandwidth"
        tables "offload-$(echo "$bandwidth" | tr -d /)"
        echo
    done
}

replicas() {
    cat <<END
ResNet-110 with times drawn alike, 30 MB/s between devices, steps of 8 microbatches. Gradients of replicas cross the same links. With
\`--zero 0\`:

END
    tables zero0
    cat <<END

With \`--zero 1\` each replica updates a part of the weights. Parts begin at multiples of 64 KiB of a tensor, so that the norm has the
bits of undivided gradients. They differ by up to that from the plan's equal ones, of 845 KiB for eight devices.

END
    tables zero1
    echo
}

kernels() {
    cat <<END
ResNet-20, 16 x 16 pixels, batch 32, with a flush in 8 microbatches. Peaks are the highest bytes that devices wrote. Weights, buffers and
optimizer states after steps with a flush are compared with one device's.

END
    tables kernels
}

{
    cat <<END
# Pipelines that ran: predicted beside measured

Question: do drivers keep the times of a plan, and are peaks and bits as predicted?

    make validate-pipelines

\`cpu*4\` is four virtual devices on one processor. In simulated time every task takes the time of the chain, and nothing is computed. Streams,
events, messages and drivers are real.

END
    section periods "Simulated time"
    section offload "Stages that offload, in simulated time"
    section replicas "Replicas in simulated time"
    section kernels "Kernels"
} >"$page.part"
mv "$page.part" "$page"
exit $status
