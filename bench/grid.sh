#!/usr/bin/env bash
# Plans the grid of bench/grid on the described H100 and prints the table of bench/results/grid.md. A run that was ended goes on.
#
#   bench/grid.sh [FLAGS OF bench/grid]    # the whole grid takes hours of one core; -models gpt2 -sizes 256 -links 4 takes minutes
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./bench/grid -o bench/results/grid.csv "$@"
go run ./bench/grid -table bench/results/grid.csv
