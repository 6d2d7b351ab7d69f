#!/usr/bin/env bash
# Runs updates of weights in host memory beside STREAM's triad, by turns and over the same GiB, and prints a table: medians of GB/s, and of
# the ratios of the pairs.
#
#   bench/host-updates.sh PAIRS [PATTERN]    PATTERN: of the rules, as go test has them: adamw; all without it
set -euo pipefail
cd "$(dirname "$0")/.."
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
echo "cores: $(getconf _NPROCESSORS_ONLN), L3: $(getconf LEVEL3_CACHE_SIZE) B, load before: $(cut -d ' ' -f 1 /proc/loadavg)"
echo
echo "| rule | path | threads | triad, GB/s | update, GB/s | update / triad | of bytes moved |"
echo "|---|---|---:|---:|---:|---:|---:|"
go test -run XXX -bench "HostUpdates/${2:-.}" -benchtime "$1x" -timeout 60m ./kernels/cpu | awk '
  /^BenchmarkHostUpdates/ {
    split($1, name, "/")
    split(name[2], rule, "-")
    threads = name[4]; sub(/^threads=/, "", threads); sub(/-.*/, "", threads)
    for (i = 3; i < NF; i++) value[$(i + 1)] = $i
    printf "| %s, %d states | %s | %d | %.1f | %.1f | %.2f | %.2f |\n", rule[1], rule[2], name[3], threads, value["triad-GB/s"], value["update-GB/s"], value["ratio"], 0.75 * value["ratio"]
  }'
