#!/usr/bin/env bash
# Prepares a folder that checks and measures the CUDA backend on a machine with a driver and nothing else; see README.md.
#
#   suite.sh DIR VERSION      (make gpu-suite sets the compiler's flags)
set -euo pipefail

most=60 # MiB
dir=$1 version=$2
cd "$(dirname "$0")/../.."
rm -rf "$dir"
mkdir -p "$dir"

commit=$(git rev-parse HEAD 2>/dev/null || echo "$version")
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit-dirty
echo "$commit" >"$dir/COMMIT"

small="-s -w"
go build -tags cuda -trimpath -ldflags "$small -X main.version=$version" -o "$dir/plimsoll" ./cmd/plimsoll
go build -tags cuda -trimpath -ldflags "$small -X main.commit=$commit" -o "$dir/gpubench" ./bench/gpu

gzip -9 "$dir/plimsoll"

# A test binary lies in a folder with what its tests read. gzip takes two thirds; run.sh unpacks.
test_binary() {
	mkdir -p "$dir/$1"
	go test -c -tags cuda -trimpath -ldflags "$small" -o "$dir/$1/$1.test" "./$2"
	gzip -9 "$dir/$1/$1.test"
	for data in testdata src ptx; do
		[ ! -d "$2/$data" ] || cp -r "$2/$data" "$dir/$1/"
	done
}
test_binary runtime runtime/cuda
test_binary kernels kernels/cuda
test_binary executor executor
test_binary drivers executor/pipeline

cp bench/gpu/run.sh bench/gpu/torch_peer.py bench/gpu/README.md "$dir/"

bytes=$(find "$dir" -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%d", sum }')
echo "$dir: $bytes bytes of at most $((most << 20))"
[ "$bytes" -le $((most << 20)) ] || { echo "suite.sh: $dir is too large: $bytes bytes, $((most << 20)) are allowed" >&2; exit 1; }
