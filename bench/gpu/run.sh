#!/usr/bin/env bash
# Checks and measures the CUDA backend on the machine's GPU, in at most nine minutes a call; see README.md. Parts that judge run beside
# each other, parts that measure one by one.
#
#   run.sh [CALL|PART...]   calls: smoke correctness measurement speed; parts: those of a call, as table.go has them and README.md explains
#                           none: smoke and correctness, and nothing behind a smoke that is red
#   run.sh merge DIR...     joins the results of several calls into OUT; needs no GPU
#
# OUT      folder for results.json, results.md and log.txt (./out); a part that runs again replaces its old result
# DEVICE   the device (cuda:0)
# PYTHON   Python with PyTorch and torchvision, for the peers (python3); without it there are no peers
# LIMIT    seconds that a part may take, of all parts (LIMIT=300) or by part (LIMIT="throughput=300 beyond=200")
# SECONDS_IN_ALL  time for everything (530)
# TINY     1: tiny shapes and no limits to speak of, which try the suite on an emulated GPU and measure nothing
# CUDA_CACHE_PATH  where the driver keeps what it has compiled (a folder in TMPDIR, on the machine's own disk)
#
# The exit status is 0 when every part of smoke and correctness that ran is green. It touches no setting of the GPU.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$PWD/out}
device=${DEVICE:-cuda:0}
python=${PYTHON:-python3}
whole=${SECONDS_IN_ALL:-${TINY:+7200}}
whole=${whole:-530}
limits=${LIMIT:-${TINY:+7200}}
tiny=${TINY:+-tiny}
short=${TINY:+-test.short}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
export CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-${TMPDIR:-/tmp}/plimsoll-cuda-cache}
mkdir -p "$CUDA_CACHE_PATH"

tar -xzf "$here/gpubench.tar.gz" -C "$work" || exit 2
bench=$work/gpubench/gpubench

# record [FLAGS...] run COMMAND: runs $part for $limit seconds at most, and never beyond the time of the whole.
record() {
	left=$((whole - SECONDS))
	if [ "$left" -lt 5 ]; then
		missing "no time was left"
		return 1
	fi
	[ "$limit" -le "$left" ] || limit=$left
	"$bench" -part "$part" -out "$out" -device "$device" -limit "${limit}s" "$@"
}

missing() { "$bench" -part "$part" -out "$out" -device "$device" -missing "$1" run; }

# tests [FLAGS...]: the test binary of the part, in its folder.
tests() {
	(cd "$work/$part" && record -tests run "./$part" -test.v -test.count=1 ${short:+$short} "$@")
}

# measured [FLAGS...]: a part of gpubench.
measured() {
	record -result "$work/$part.json" run "$bench" -device "$device" ${tiny:+$tiny} -result "$work/$part.json" "$@" "$part"
}

validate() {
	set -- -m resnet18 --image 64 --batch 8 --memory 100%,75%,55%
	[ -z "$tiny" ] || set -- -m resnet20 --image 8 --batch 8 --memory 100%,85%
	record run "$work/plimsoll/plimsoll" validate "$@" --devices "$device" --strategy rotor,periodic --steps 3 --option profile.no-cache --json
}

# pipelines: virtual devices share the GPU, so bits are judged, and times are shown.
pipelines() {
	set -- -m resnet50 --image 64 --batch 32 --minibatches 16
	[ -z "$tiny" ] || set -- -m resnet20 --image 8 --batch 8 --minibatches 6
	record run "$work/plimsoll/plimsoll" validate "$@" --devices "$device*2;$device*4" \
		--strategy "1f1b*,gpipe,1f1b-flush,interleaved,zb-h1,zb-v" --microbatches 8 --steps 2 --option profile.no-cache --json
}

# sanitizer: the part's name is the tool. Vendors' libraries are not ours to check.
sanitizer() {
	tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
	if [ -z "$tool" ]; then
		missing "compute-sanitizer is not installed"
		return
	fi
	record run "$tool" --tool "$part" --error-exitcode 7 "$bench" -device "$device" -vendor refuse -tiny steps
}

# compared [FLAGS...]: a part of gpubench beside PyTorch, if it is here.
compared() {
	if [ -z "${peer+x}" ]; then # once, as it takes seconds
		peer=
		! "$python" -c 'import torch, torchvision' >/dev/null 2>&1 || peer=$here/torch_peer.py
	fi
	measured ${peer:+-python "$python" -peer "$peer"} "$@"
}

# perform runs $part.
perform() {
	case $part in
	runtime) tests ;;
	kernels) tests -test.skip '^TestPTXAssembles$' ;; # where ptxas is, it would assemble for minutes: make test-ptxas
	executor) tests -test.run GPU ;; # the other tests need none
	drivers) tests -test.run GPUs ;;
	validate | pipelines) "$part" ;;
	world) measured -program "$work/plimsoll/plimsoll" ;;
	language | residency) compared -program "$work/plimsoll/plimsoll" ;;
	memcheck | racecheck) sanitizer ;;
	ops) PLIMSOLL_CUDA_WGMMA=1 compared ;;
	vendors) PLIMSOLL_CUDA_WGMMA=1 measured ;;
	throughput | beyond) compared ;;
	*) measured ;;
	esac
}

# judged: the part that is red makes the whole red.
judged() { perform || [ "$kind" != judges ] || : >"$work/bad"; }

if [ "${1:-}" = merge ]; then
	shift
	"$bench" -out "$out" merge "$@"
	exit
fi
# Where the loader does not find NCCL, Python's packages may have it.
if [ -z "${PLIMSOLL_NCCL:-}" ] && ! ldconfig -p 2>/dev/null | grep -q libnccl.so.2; then
	for found in "$(dirname "$(readlink -f "$(command -v "$python" || echo /)")")"/../lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2 \
		"$(dirname "$(command -v "$python" || echo /)")"/../lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2; do
		[ ! -e "$found" ] || export PLIMSOLL_NCCL=$found
	done
fi
parts=$("$bench" -limits "$limits" parts "$@") || exit 2
(set -o pipefail; "$bench" decompress <"$here/programs.tar.zst" | tar -x -C "$work") || exit 2
go=1
while read -r part limit kind <&3; do
	case $go:$part:$kind in
	0:*) missing "smoke is red, and says what to mend" ;;
	1:smoke:*) judged; [ ! -e "$work/bad" ] || go=0 ;;
	1:*:judges) judged & ;; # beside the others that judge: their times say nothing
	*) wait; judged ;;
	esac
done 3<<<"$parts"
wait
echo
"$bench" -out "$out" summary
[ ! -e "$work/bad" ]
