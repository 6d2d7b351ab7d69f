// Devices: memory, and whether they still answer.
#pragma once
#include <cuda.h>

#include <memory>

#include "space.h"

namespace emulator {

class Context;

// Device is one emulated GPU.
struct Device {
    Device(int ordinal, uint64_t bytes);

    const int ordinal;
    const uint64_t bytes;
    Space memory;
    CUresult lost = CUDA_SUCCESS; // what every call of its contexts returns once it is lost
    Context *primary = nullptr;
    int primaryUsers = 0;
    unsigned primaryFlags = 0;

    // The answer of cuDeviceGetAttribute; -1 for an attribute that it does not know.
    int attribute(CUdevice_attribute which) const;
};

} // namespace emulator
