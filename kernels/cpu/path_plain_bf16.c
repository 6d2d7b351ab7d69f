// The plain path with activations in bfloat16, by conversion.
#define HALF 1
#include "path_plain.c"
