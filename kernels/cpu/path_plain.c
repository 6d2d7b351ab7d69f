// The plain path: four floats at a time, on any processor.
#pragma STDC FP_CONTRACT OFF
#define PATH 0
#include "path.h"
#include "kernels.h"
#if HALF
kernel_fn *const *const plimsoll_plain_bf16 = table;
#else
kernel_fn *const *const plimsoll_plain = table;
const int64_t plimsoll_plain_panel = PANEL;
#endif
