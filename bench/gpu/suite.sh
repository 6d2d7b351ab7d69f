#!/usr/bin/env bash
# Prepares a folder that checks and measures the CUDA backend on a machine with a driver and nothing else; see README.md.
#
#   suite.sh DIR VERSION      (make gpu-suite sets the compiler's flags)
set -euo pipefail

most=63 # MiB that travel, of the 64 that such a machine takes: this folder and the files of the repository
dir=$1 version=$2
cd "$(dirname "$0")/../.."
rm -rf "$dir"
mkdir -p "$dir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commit=$(git rev-parse HEAD 2>/dev/null || echo "$version")
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit-dirty
echo "$commit" >"$dir/COMMIT"
small="-s -w"

# archive NAME...: an archive of these folders.
archive() { tar --sort=name --owner=0 --group=0 -C "$work" -c "$@"; }

program() {
	mkdir "$work/$1"
	go build -tags cuda -trimpath -ldflags "$small $3" -o "$work/$1/$1" "$2"
}
program plimsoll ./cmd/plimsoll "-X main.version=$version"
program gpubench ./bench/gpu "-X main.commit=$commit"

# A test binary lies in a folder with the files that its tests read.
test_binary() {
	mkdir "$work/$1"
	go test -c -tags cuda -trimpath -ldflags "$small" -o "$work/$1/$1" "./$2"
	for data in testdata src ptx; do
		[ ! -d "$2/$data" ] || cp -r "$2/$data" "$work/$1/"
	done
}
test_binary runtime runtime/cuda
test_binary kernels kernels/cuda
test_binary executor executor/measure
test_binary drivers executor/pipeline

# gzip is everywhere: it packs gpubench, which unpacks the others. They are one archive, as they share most of their code.
archive gpubench | gzip -9 >"$dir/gpubench.tar.gz"
archive plimsoll runtime kernels executor drivers | "$work/gpubench/gpubench" compress >"$dir/programs.tar.zst"

cp bench/gpu/run.sh bench/gpu/torch_peer.py bench/gpu/README.md "$dir/"

# tracked lists the files that travel beside the folder: those of git, or all in a tree without it.
tracked() { git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -path ./out -prune -o -type f -print0; }

sum() { awk '{ sum += $1 } END { printf "%d", sum }'; }
mib() { awk "BEGIN { printf \"%.1f MiB\", $1 / 1048576 }"; }
suite=$(find "$dir" -type f -printf '%s\n' | sum)
beside=$(tracked | xargs -0 stat -c %s 2>/dev/null | sum)
all=$((suite + beside))
echo "$dir: $(mib "$suite"), and the files of the repository: $(mib "$beside"); together $(mib "$all") of at most $most.0 MiB"
[ "$all" -le $((most << 20)) ] || { echo "suite.sh: $(mib "$all") are too much: take large files out of the repository, or of $dir" >&2; exit 1; }
