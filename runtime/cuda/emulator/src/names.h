// The driver's error codes: their names and what they do to a context.
#pragma once
#include <cuda.h>

namespace emulator {

// "CUDA_ERROR_NOT_READY"; null for a code that cuda.h does not have.
const char *errorName(CUresult error);

// The text that cuGetErrorString returns; null for a code that cuda.h does not have.
const char *errorText(CUresult error);

// Reports whether the error ends the context (CUDA calls such errors sticky).
bool isSticky(CUresult error);

// Reports whether the error ends the device.
bool isLoss(CUresult error);

} // namespace emulator
