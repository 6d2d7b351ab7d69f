#!/usr/bin/env bash
# Rehearses README.md: types its calls of run.sh, word by word, in a tree of the tracked files with the suite's folder, on the emulated driver.
#
#   rehearsal.sh EMULATOR SUITE      (make gpu-rehearsal builds both; OUT takes the merged results: out/gpu-rehearsal)
#
# Fakes stand for cuBLAS and cuDNN in smoke, and in a fifth call of the part world: nowhere else, as choosing among them takes an emulated
# GPU hours. It fails when a part is neither green nor skipped, when smoke does not say go, and when a call leaves more files than come back.
set -euo pipefail

files=8 bytes=$((16 << 20)) # that come back from a call
cd "$(dirname "$0")/../.."
emulator=$(cd "$1" && pwd)
keep=${OUT:-$PWD/out/gpu-rehearsal}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/out/gpu-calls" "$tree/fakes"
git ls-files -z | tar --null -T - -c | tar -x -C "$tree"
cp -r "$2" "$tree/out/gpu-suite"
echo "the tree with the suite: $(du -s --apparent-size -B1 "$tree" | cut -f1) bytes"

# fake SOURCE FILE VERSION: builds a library that stands for a vendor's, as kernels/cuda/nvidia/fake does.
fake() { g++ -std=c++17 -O1 -shared -fPIC -fvisibility=hidden -DFAKE_VERSION="$3" -o "$tree/fakes/$2" "kernels/cuda/nvidia/fake/src/$1.cc" -ldl; }
fake cudnn libcudnn.so.9 91002
fake cublas libcublas.so.12 12

fail() { echo "rehearsal.sh: $1" >&2; exit 1; }

# call COMMAND [VARIABLE=VALUE]: a call of run.sh, whose folder for results is empty.
call() {
	export OUT=$tree/out/gpu-calls/${1##* }
	mkdir "$OUT"
	echo "==> $1"
	env ${2:+"$2"} bash -c "$1" || fail "$1: exit status $?"
	[ "$(find "$OUT" -type f | wc -l)" -le "$files" ] || fail "$1 leaves more than $files files"
	[ -z "$(find "$OUT" -type f -size +"${bytes}c")" ] || fail "$1 leaves a file of more than $bytes bytes"
}

cd "$tree"
export TINY=1 PYTHON=false LD_LIBRARY_PATH=$emulator
fakes=PLIMSOLL_CUDA_LIBRARIES=$tree/fakes
mapfile -t calls < <(sed -n 's/^    \(out\/gpu-suite\/run\.sh [a-z]*\) .*/\1/p' bench/gpu/README.md)
[ "${#calls[@]}" = 4 ] || fail "README.md has ${#calls[@]} calls of run.sh, not 4"
call "${calls[0]}" "$fakes"
for line in "${calls[@]:1}"; do call "$line"; done
call "out/gpu-suite/run.sh world" "$fakes"
unset OUT

merge=$(sed -n 's/^    \(OUT=[^ ]* out\/gpu-suite\/run\.sh merge .*\)/\1/p' bench/gpu/README.md)
echo "==> $merge"
LD_LIBRARY_PATH='' bash -c "$merge"
mkdir -p "$keep"
cp out/gpu-results/* "$keep/"
grep -q '^| smoke | green | .* go: ' out/gpu-results/results.md || fail "smoke does not say go"
! grep -E '^\| [a-z]+ \| (red|stopped) ' out/gpu-results/results.md || fail "some parts are red or stopped"
