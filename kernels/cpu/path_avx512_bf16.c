// The AVX-512 path with activations in bfloat16, by conversion.
#define HALF 1
#include "path_avx512.c"
