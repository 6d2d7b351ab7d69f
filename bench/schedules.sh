#!/usr/bin/env bash
# Plans the grid of bench/schedules and prints the tables of bench/results/schedules.md. A run that was ended goes on.
#
#   bench/schedules.sh [FLAGS OF bench/schedules]    # the whole grid takes hours of one core; -chains gnmt -devices 8 takes a minute
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./bench/schedules -o bench/results/schedules.csv "$@"
go run ./bench/schedules -table bench/results/schedules.csv
