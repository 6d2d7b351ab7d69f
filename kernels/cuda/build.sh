#!/bin/sh
# Compiles the src/*.cu that have changed to ptx/*.ptx.gz with NVRTC of CUDA 12.6 or older (in PyPI's wheel nvidia-cuda-nvrtc-cu12).
#
#   build.sh [NVRTC_LIBRARY]
#
# NVRTC_LIBRARY: the file libnvrtc.so.12; without it, where the loader finds one.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
export CGO_CFLAGS="${CGO_CFLAGS:-} -I$root/runtime/cuda/include" CGO_LDFLAGS="${CGO_LDFLAGS:-} -L$root/runtime/cuda/lib"
exec go run -tags cuda ./kernels/cuda/ptxgen -nvrtc "${1:-libnvrtc.so.12}"
