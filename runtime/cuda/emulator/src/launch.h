// Launches: a kernel with its geometry and argument.
#pragma once
#include <atomic>
#include <cuda.h>
#include <string>
#include <vector>

#include "block.h"
#include "gpu.h"

namespace emulator {

struct Function;

// Launches of more blocks run only their last ones; 0: all blocks run. See plimsollEmulatorLastBlocks.
extern std::atomic<uint64_t> lastBlocks;

// Launch is one prepared launch; it may run many times (in a graph).
struct Launch {
    const Kernel *kernel = nullptr;
    Shape shape{};
    size_t dynamic = 0;         // bytes of dynamic shared memory
    std::vector<char> argument; // a copy, as a launch takes it at the call

    // Returns the error with which CUDA refuses the call: CUDA_ERROR_INVALID_VALUE, or LAUNCH_OUT_OF_RESOURCES for a
    // block beyond the kernel's bounds.
    CUresult check(const Function &function, const Device &device) const;
    // Runs all blocks, on this thread of the host and on the processors. It blocks until they are done.
    CUresult run() const;
};

} // namespace emulator
