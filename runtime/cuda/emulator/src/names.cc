#include "names.h"

namespace emulator {

const char *errorName(CUresult error) {
    switch (error) {
#define NAME(name)                                                                                                     \
    case name: return #name;
#include "errors.inc" // made by build.sh out of cuda.h
#undef NAME
    }
    return nullptr;
}

const char *errorText(CUresult error) {
    switch (error) {
#define NAME(name)                                                                                                     \
    case name: return "emulated GPU: " #name;
#include "errors.inc"
#undef NAME
    }
    return nullptr;
}

bool isLoss(CUresult error) {
    return error == CUDA_ERROR_DEVICE_UNAVAILABLE || error == CUDA_ERROR_ECC_UNCORRECTABLE ||
           error == CUDA_ERROR_NVLINK_UNCORRECTABLE;
}

bool isSticky(CUresult error) {
    switch (error) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return isLoss(error);
    }
}

} // namespace emulator
