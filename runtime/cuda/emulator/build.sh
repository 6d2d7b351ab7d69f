#!/bin/sh
# Builds the emulated driver, libcuda.so.1, out of its own sources and kernels compiled for the host.
#
#   build.sh OUT_DIR [--checked] [--sanitize] KERNEL_DIR...
#
# --checked   watch every access of the kernels (see README.md); slower
# --sanitize  compile the emulator's own code with AddressSanitizer and UBSan (for C++ programs; needs LD_PRELOAD of libasan)
#
# PLIMSOLL_EMULATOR_OBJECTS is a folder for the emulator's own objects, to share between builds with equal options but
# --checked; OUT_DIR/objects when it is not set.
#
# KERNEL_DIR: all *.cu files in it. CXX is the compiler, g++ when it is not set. Nothing is rebuilt that is newer than
# what it is made of.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
include=$here/../include
cxx=${CXX:-g++}

[ $# -ge 1 ] || { sed -n '2,16p' "$0" >&2; exit 2; }
out=$1
shift
checked= sanitize= kernels=
for argument in "$@"; do
	case $argument in
	--checked) checked=yes ;;
	--sanitize) sanitize=yes ;;
	-*) echo "build.sh: $argument: no such option" >&2; exit 2 ;;
	*) [ -d "$argument" ] || { echo "build.sh: $argument: no such directory" >&2; exit 2; }
		kernels="$kernels $argument" ;;
	esac
done

shared=${PLIMSOLL_EMULATOR_OBJECTS:-$out/objects}
mkdir -p "$out/objects" "$shared"
machine=
grep -qw avx2 /proc/cpuinfo 2>/dev/null && grep -qw bmi2 /proc/cpuinfo && grep -qw fma /proc/cpuinfo && machine=-march=x86-64-v3
common="-std=gnu++17 -O2 -g1 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math -Wall $machine -I$include -I$shared -pthread"
own="$common -Wextra -Wshadow"
[ -z "$sanitize" ] || own="$own -fsanitize=address,undefined -fno-sanitize-recover=undefined"
# Kernels read the same bytes as different types. TSan's instrumentation is code that calls __tsan_*: src/hooks.cc.
device="$common -x c++ -include $here/device.h -fno-strict-aliasing -Wno-unknown-pragmas"
[ -z "$checked" ] || device="$device -fsanitize=thread"

cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
running=0

# make_object SOURCE OBJECT FLAGS: compiles, in the background, when a file that the object was made of is newer, or the
# flags are others. A failure leaves no object.
make_object() {
	if [ -f "$2" ] && [ "$(cat "$2.flags" 2>/dev/null)" = "$3" ] && ! newer "$2"; then return; fi
	rm -f "$2"
	# shellcheck disable=SC2086
	{ $cxx $3 -MMD -MF "$2.d" -c "$1" -o "$2" && printf '%s' "$3" >"$2.flags"; } &
	running=$((running + 1))
	[ $((running % cores)) -ne 0 ] || wait
}

newer() {
	for file in $(sed 's/^[^:]*://; s/\\$//' "$1.d"); do
		[ "$file" -ot "$1" ] || return 0
	done
	return 1
}

sed -n 's/^ *\(CUDA_[A-Z0-9_]*\) = [0-9]*,$/NAME(\1)/p' "$include/cuda.h" >"$shared/errors.new"
cmp -s "$shared/errors.new" "$shared/errors.inc" || mv "$shared/errors.new" "$shared/errors.inc"

objects=
for source in "$here"/src/*.cc; do
	object=$shared/$(basename "$source").o
	flags=$own
	# A compiler that sanitizes knows these names already.
	[ "$(basename "$source")" != hooks.cc ] || flags=$common
	make_object "$source" "$object" "$flags"
	objects="$objects $object"
done
make_object "$here/src/markers/begin.cc" "$out/objects/begin.o" "$own"
objects="$objects $out/objects/begin.o"
count=0
for directory in $kernels; do
	for source in "$directory"/*.cu; do
		[ -f "$source" ] || continue
		object=$out/objects/$(echo "$source" | tr -c 'A-Za-z0-9\n' _).o
		exact=
		! grep -qx '#define NO_CONTRACTION' "$source" || exact=-ffp-contract=off
		make_object "$source" "$object" "$device -I$directory $exact"
		objects="$objects $object"
		count=$((count + 1))
	done
done

make_object "$here/src/markers/end.cc" "$out/objects/end.o" "$own ${checked:+-DPLIMSOLL_CHECKED}"
objects="$objects $out/objects/end.o"
wait
for object in $objects; do
	[ -f "$object" ] || { echo "build.sh: no $object" >&2; exit 1; }
done

# Every function of cuda.h that nothing defines says so when it is called.
# shellcheck disable=SC2086
nm --defined-only $objects | sed -n 's/^[0-9a-f]* T \(cu[A-Z][A-Za-z0-9_]*\)$/\1/p' | sort -u >"$out/defined"
$cxx -E -P -x c++ "$include/cuda.h" | grep -o '\bcu[A-Z][A-Za-z0-9_]*(' | tr -d '(' | sort -u >"$out/declared"
{
	echo '#include <cstdio>'
	printf '%s\n' 'static int unsupported(const char *name) { fprintf(stderr, "emulated GPU: %s is not emulated\n", name); return 801; }'
	comm -23 "$out/declared" "$out/defined" |
		sed 's/.*/extern "C" __attribute__((visibility("default"))) int &() { return unsupported("&"); }/'
} >"$out/unsupported.cc"
# shellcheck disable=SC2086
$cxx $common -c "$out/unsupported.cc" -o "$out/objects/unsupported.o"

sanitizers=
[ -z "$sanitize" ] || sanitizers=-fsanitize=address,undefined
# shellcheck disable=SC2086
$cxx -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs $sanitizers -pthread -o "$out/libcuda.so.1.new" $objects "$out/objects/unsupported.o" -lm
mv "$out/libcuda.so.1.new" "$out/libcuda.so.1"
echo "emulated GPU: $out/libcuda.so.1 with the kernels of $count files"
