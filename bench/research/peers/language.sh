#!/bin/sh
# Times GPT-2 124M's training steps and causal attention beside PyTorch's: one core, two cores, and one core with MKL's AVX-512, which it
# takes by itself on Intel's processors alone. usage: bench/research/peers/language.sh PYTHON out/peers
set -e
python=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
out=$(realpath "$2")
go build -C "$here" -o "$out/peers" .
${CC:-cc} -shared -fPIC -o "$out/mkl_avx512.so" "$here/src/mkl_avx512.c"
set -- "$out/peers" -scripts "$here/src" -python "$python"
{
	taskset -c 0 "$@" -only attention -threads 1 -rounds 3
	taskset -c 0 "$@" -only gpt2 -threads 1 -rounds 3
	taskset -c 0,1 "$@" -only gpt2 -threads 2 -rounds 3
	printf '\nWith MKL told to take AVX-512:\n\n'
	LD_PRELOAD=$out/mkl_avx512.so taskset -c 0 "$@" -only gpt2 -threads 1 -batches 4x64,1x1024 -rounds 3
} | tee "$out/language-speed.md"
