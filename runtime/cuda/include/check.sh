#!/bin/sh
# Compares cuda.h with NVIDIA's of CUDA 12 or 13 by having a compiler read both: each prototype of ours is declared again behind
# theirs, under the versioned name that we link to, and each value, size and offset is asserted. Usage: check.sh NVIDIA_CUDA_H
set -eu
theirs=${1:?usage: check.sh NVIDIA_CUDA_H}
ours=$(dirname "$0")/cuda.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What our structs look like, in their words, from a program that is compiled with our header alone.
awk '
    /^typedef struct .* \{$/ { fields = ""; inside = 1; next }
    inside && /^\}/ { sub(/;/, "", $2); print "struct", $2, fields; inside = 0; next }
    inside { name = $NF; gsub(/[;*]|\[.*\]/, "", name); fields = fields " " name }
' "$ours" > "$work/structs"
{
    printf '#include "%s"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' "$(realpath "$ours")"
    while read -r _ struct fields; do
        printf '    printf("ASSERT(sizeof(%s) == %%zu)\\n", sizeof(%s));\n' "$struct" "$struct"
        for field in $fields; do
            printf '    printf("ASSERT(offsetof(%s, %s) == %%zu)\\n", offsetof(%s, %s));\n' "$struct" "$field" "$struct" "$field"
        done
    done < "$work/structs"
    printf '}\n'
} > "$work/layout.c"
cc -o "$work/layout" "$work/layout.c"

# Prototypes under the names that the library exports: NVIDIA's header then gives an unversioned name to a newer version only.
sed -n 's/^#define \(cu[A-Za-z0-9]*\) \(cu[A-Za-z0-9_]*\)$/s,^CUresult \1(,CUresult \2(,/p' "$ours" > "$work/versions"
grep '^CUresult cu' "$ours" | sed -f "$work/versions" > "$work/prototypes"
sed 's/^CUresult \(cu[A-Za-z0-9_]*\)(.*/\1/' "$work/prototypes" > "$work/names"

{
    printf '#include "%s"\n#include <stddef.h>\n' "$(realpath "$theirs")"
    printf '#define ASSERT(x) _Static_assert(x, #x);\n'
    "$work/layout"
    sed -n 's/^    \(CU[A-Z0-9_a-z]*\) = \([0-9-]*\),$/ASSERT(\1 == \2)/p' "$ours"
    sed -n '/CUDA_VERSION/d; s/^#define \(CU[A-Z0-9_]*\) \(.*\)$/ASSERT(\1 == \2)/p' "$ours" | sed 's/== \/\/.*/)/'
    sed 's/.*/__typeof__(\&&) declared_&;/' "$work/names" # an error for a name that they do not declare
    cat "$work/prototypes"
} > "$work/check.c"
cc -std=gnu11 -fsyntax-only -D__CUDA_API_VERSION_INTERNAL "$work/check.c"

# Names that their header gives to another version than ours, for the reader: we call the older one, which the library still exports.
{
    printf '#include "%s"\n' "$(realpath "$theirs")"
    while read -r name; do printf 'ours "%s" is %s\n' "$name" "${name%_v[0-9]}"; done < "$work/names"
} | cc -E -P - | awk '$1 == "ours" && $3 == "is" { gsub(/"/, "", $2) } $1 == "ours" && $2 != $4 { print "newer there: " $4 ", we call " $2 }'
printf '%d assertions and %d prototypes agree\n' "$(grep -c '^ASSERT' "$work/check.c")" "$(wc -l < "$work/prototypes")"
