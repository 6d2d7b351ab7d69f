#!/bin/sh
# Compares cuda.h with NVIDIA's of CUDA 12.6 by having a compiler read both: each prototype of ours is declared again
# behind theirs, and each value, size, offset and versioned name is asserted. Usage: check.sh NVIDIA_CUDA_H
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

{
    printf '#include "%s"\n#include <stddef.h>\n' "$(realpath "$theirs")"
    printf '#define ASSERT(x) _Static_assert(x, #x);\n#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n'
    "$work/layout"
    sed -n 's/^    \(CU[A-Z0-9_a-z]*\) = \([0-9-]*\),$/ASSERT(\1 == \2)/p' "$ours"
    sed -n 's/^#define \(CU[A-Z0-9_]*\) \(.*\)$/ASSERT(\1 == \2)/p' "$ours" | sed 's/== \/\/.*/)/'
    sed -n 's/^#define \(cu[A-Za-z0-9]*\) \(cu[A-Za-z0-9_]*\)$/ASSERT(__builtin_strcmp(NAME(\1), "\2") == 0)/p' "$ours"
    grep '^CUresult cu' "$ours"
} > "$work/check.c"
cc -std=gnu11 -fsyntax-only "$work/check.c"
printf '%d assertions and %d prototypes agree\n' "$(grep -c '^ASSERT' "$work/check.c")" "$(grep -c '^CUresult cu' "$work/check.c")"
