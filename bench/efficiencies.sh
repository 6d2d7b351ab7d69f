#!/usr/bin/env bash
# Prints the rows of "efficiencies" of a device file that follow from the measured calls of bench/results/gpu-h100.md, with the rates of the
# data sheet as what shares are of. Of each op, pass and type, time = floor / share + launch is fitted to the calls that the table lists, by
# least squares of relative errors; a call counts as often as a step makes it. Where no listed call is bound by arithmetic, or none by memory,
# the share of that is the ceiling's. Where all floors are alike, launch is 0. From every time goes
# the device's launch_s first. Of a step in TF32 only products of convolutions and linear layers are in that type; the other rows are float32.
# The last row of a model has the calls that the table leaves out, together: the totals above the table less the listed calls.
#
#   bench/efficiencies.sh [RESULTS.md]
set -euo pipefail
cd "$(dirname "$0")/.."
awk -F ' *[|] *' -v bandwidth=3.35e12 -v bfloat16=989.4e12 -v tf32=494.7e12 -v float32=66.9e12 -v launch_s=2e-6 '
  function seconds(text,  part) {
    split(text, part, " ")
    return part[1] * (part[2] == "s" ? 1 : part[2] == "ms" ? 1e-3 : 1e-6)
  }
  function row(op, pass, slope, of, launch, bound,  as, share) {
    as = of == "tf32" && op != "linear" && op != "conv2d" ? "float32" : of
    share = rate[of] * peak[of] / (bound ~ /a/ ? slope : 1) / peak[as]
    printf "{"
    if (op != "") printf "\"op\":\"%s\",", op
    if (pass != "") printf "\"pass\":\"%s\",", pass
    printf "\"dtype\":\"%s\",\"arithmetic\":%.3f,\"memory\":%.3f", as, (share > 1 ? 1 : share), memory / (bound ~ /m/ ? slope : 1)
    if (launch > 0) printf ",\"launch_s\":%.2g", launch
    printf "}"
  }
  function rest() {
    if (model != "" && listed > 0) { row("", "", (whole - listed) / (floors - floor), type, 0, "am"); printf "   # all calls of %s that are not listed\n", model }
  }
  BEGIN { peak["bfloat16"] = bfloat16; peak["tf32"] = tf32; peak["float32"] = float32 }
  /^## / { on = ($0 == "## ops") }
  !on { next }
  /^Ceilings/ {
    match($0, /memory [0-9.]+/); memory = substr($0, RSTART + 7, RLENGTH - 7) * 1e12 / bandwidth
    for (t in peak) { match($0, t " [0-9.e+]+"); rate[t] = substr($0, RSTART + length(t) + 1, RLENGTH) / peak[t] }
    printf "# ceilings: memory %.3f of the data sheet, bfloat16 %.3f, tf32 %.3f, float32 %.3f\n", memory, rate["bfloat16"], rate["tf32"], rate["float32"]
  }
  /^[a-z].* batch [0-9]+, / {
    rest()
    type = $0; sub(/:.*/, "", type); sub(/.*, /, "", type)
    model = $1; sub(/ .*/, "", model); listed = floor = 0
    match($0, /other [0-9.]+ [mnµ]*s/); whole = seconds(substr($0, RSTART + 6, RLENGTH - 6))
    match($0, /floors [0-9.]+ [mnµ]*s/); floors = seconds(substr($0, RSTART + 7, RLENGTH - 7))
  }
  NF >= 9 && $5 ~ /^[0-9]+$/ {
    key = $2 "|" $3 "|" type
    if (!(key in n)) order[++keys] = key
    x = seconds($7); y = seconds($6); listed += $5 * y; floor += $5 * x
    y -= launch_s; w = $5 / (y * y)
    n[key]++; sw[key] += w; sx[key] += w * x; sy[key] += w * y; sxx[key] += w * x * x; sxy[key] += w * x * y
    bounds[key] = bounds[key] substr($8, 1, 1)
    if (n[key] == 1 || x < least[key]) least[key] = x
    if (n[key] == 1 || x > most[key]) most[key] = x
  }
  END {
    rest()
    for (i = 1; i <= keys; i++) {
      k = order[i]; split(k, name, "|"); launch = 0
      slope = sxy[k] / sxx[k]
      if (most[k] > 1.5 * least[k]) {
        fitted = (sw[k] * sxy[k] - sx[k] * sy[k]) / (sw[k] * sxx[k] - sx[k] * sx[k])
        start = (sy[k] - fitted * sx[k]) / sw[k]
        if (start > 0 && fitted > 0) { slope = fitted; launch = start }
      }
      if (slope < 1) slope = 1
      row(name[1], name[2], slope, name[3], launch, bounds[k])
      printf "   # of %d calls\n", n[k]
    }
  }' "${1:-bench/results/gpu-h100.md}"
