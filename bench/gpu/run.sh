#!/usr/bin/env bash
# Checks and measures the CUDA backend on the machine's GPU, in at most nine minutes a call; see README.md.
#
#   run.sh [PART...]      runtime kernels executor steps validate drivers pipelines world sanitizer copies ops vendors rotor offload
#                         throughput beyond; none: the first nine, which are those of correctness
#
# OUT      folder for results.json, results.md and log.txt (./out); a part that runs again replaces its old result
# DEVICE   the device (cuda:0)
# PYTHON   Python with PyTorch and torchvision, for the peers (python3); without it there are no peers
# LIMIT    seconds that a part may take, of all parts (LIMIT=300) or by part (LIMIT="throughput=300 beyond=200")
# SECONDS_IN_ALL  time for everything (530; TINY: 2000, and four times as much for each part)
# TINY     1: tiny shapes, which try the suite and measure nothing
#
# The exit status is 0 when every part of the first nine that ran is green: correctness. It touches no setting of the GPU.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$PWD/out}
device=${DEVICE:-cuda:0}
python=${PYTHON:-python3}
whole=${SECONDS_IN_ALL:-530}
[ -z "${TINY:-}" ] || whole=${SECONDS_IN_ALL:-2000} # an emulated GPU is slow
tiny=${TINY:+-tiny}
short=${TINY:+-test.short}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
bad=0

# record NAME LIMIT [FLAGS...] COMMAND: runs a part, for LIMIT seconds at most, and never beyond the time of the whole.
record() {
	name=$1 limit=$2 left=$((whole - SECONDS))
	shift 2
	[ -z "$tiny" ] || limit=$((4 * limit))
	limit=$(limit_of "$name" "$limit")
	if [ "$left" -lt 5 ]; then
		"$here/gpubench" -part "$name" -out "$out" -device "$device" -missing "no time was left" run
		return 1
	fi
	[ "$limit" -le "$left" ] || limit=$left
	"$here/gpubench" -part "$name" -out "$out" -device "$device" -limit "${limit}s" "$@"
}

# limit_of NAME DEFAULT: what LIMIT says of a part.
limit_of() {
	for said in ${LIMIT:-}; do
		case $said in
		"$1="*) echo "${said#*=}" && return ;;
		*=*) ;;
		*) echo "$said" && return ;;
		esac
	done
	echo "$2"
}

missing() { "$here/gpubench" -part "$1" -out "$out" -device "$device" -missing "$2" run; }

# tests NAME LIMIT [FLAGS...]: a test binary, in its package's folder.
tests() {
	part=$1 limit=$2
	shift 2
	unpack "$part/$part.test" || return
	(cd "$here/$part" && record "$part" "$limit" -tests run "$work/$part.test" -test.v -test.count=1 ${short:+$short} "$@")
}

# unpack PROGRAM: makes $work/PROGRAM.
unpack() {
	program=$work/$(basename "$1")
	[ -x "$program" ] || { gunzip -c "$here/$1.gz" >"$program" && chmod +x "$program"; }
}

# measured NAME LIMIT [FLAGS...]: a part of gpubench.
measured() {
	part=$1 limit=$2
	shift 2
	record "$part" "$limit" -result "$work/$part.json" run "$here/gpubench" -device "$device" ${tiny:+$tiny} -result "$work/$part.json" "$@" "$part"
}

validate() {
	unpack plimsoll || return
	set -- -m resnet18 --image 64 --batch 8 --memory 100%,75%,55%
	[ -z "$tiny" ] || set -- -m resnet20 --image 8 --batch 8 --memory 100%,85%
	record validate 45 run "$work/plimsoll" validate "$@" --devices "$device" --strategy rotor,periodic --steps 3 --no-cache --json
}

# pipelines: virtual devices share the GPU, so bits are judged, and times are shown.
pipelines() {
	unpack plimsoll || return
	set -- -m resnet50 --image 64 --batch 32 --minibatches 16
	[ -z "$tiny" ] || set -- -m resnet20 --image 8 --batch 8 --minibatches 6
	record pipelines 40 run "$work/plimsoll" validate "$@" --devices "$device*2;$device*4" \
		--strategy "1f1b*,gpipe,1f1b-flush,interleaved,zb-h1,zb-v" --microbatches 8 --steps 2 --no-cache --json
}

# world: two processes share the GPU, so bits and peaks are judged, and times are shown.
world() {
	unpack plimsoll || return
	measured world 90 -program "$work/plimsoll"
}

sanitizer() {
	tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
	if [ -z "$tool" ]; then
		missing sanitizer "compute-sanitizer is not installed"
		return
	fi
	# shellcheck disable=SC2016 # the inner shell's variables
	record sanitizer 60 run bash -c 'for check in memcheck racecheck; do "$0" --tool $check --error-exitcode 7 "$1" -device "$2" -tiny steps || exit; done' \
		"$tool" "$here/gpubench" "$device"
}

# peer prints the flags for PyTorch, if it is here.
peer() {
	if "$python" -c 'import torch, torchvision' >/dev/null 2>&1; then
		printf '%s\n' -python "$python" -peer "$here/torch_peer.py"
	fi
}

correct() { "$@" || bad=1; }

case ${LIMIT:-} in *[!a-z0-9=\ ]*) echo "run.sh: LIMIT is \"$LIMIT\": give seconds, as in 300 or throughput=300" >&2 && exit 2 ;; esac
[ $# -gt 0 ] || set -- runtime kernels executor steps validate drivers pipelines world sanitizer
case " $* " in *" ops "* | *" throughput "* | *" beyond "*) mapfile -t peers < <(peer) ;; *) peers=() ;; esac
for wanted in "$@"; do
	case $wanted in
	runtime) correct tests runtime 45 ;;
	kernels) correct tests kernels 90 ;;
	executor) correct tests executor 60 -test.run GPU ;; # the others need none
	steps) correct measured steps 60 ;;
	validate) correct validate ;;
	drivers) correct tests drivers 40 -test.run GPUs ;;
	pipelines) correct pipelines ;;
	world) correct world ;;
	sanitizer) correct sanitizer ;;
	copies) measured copies 20 ;;
	ops) measured ops 90 "${peers[@]}" ;;
	vendors) measured vendors 90 ;;
	rotor) measured rotor 120 ;;
	offload) measured offload 120 ;;
	throughput) measured throughput 280 "${peers[@]}" ;;
	beyond) measured beyond 240 "${peers[@]}" ;;
	*)
		echo "run.sh: unknown part $wanted: known are runtime kernels executor steps validate drivers pipelines world sanitizer copies ops vendors rotor offload throughput beyond" >&2
		exit 2
		;;
	esac
done
echo
"$here/gpubench" -out "$out" summary
exit $bad
