#include "launch.h"

#include <algorithm>
#include <atomic>

#include "findings.h"
#include "module.h"
#include "processors.h"
#include "stream.h"

namespace emulator {

std::atomic<uint64_t> lastBlocks{0};

CUresult Launch::check(const Function &function, const Device &device) const {
    const auto within = [&](unsigned n, CUdevice_attribute most) {
        return n > 0 && n <= static_cast<unsigned>(device.attribute(most));
    };
    const dim3 &b = shape.blocks, &t = shape.threads;
    if (!within(b.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) || !within(b.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y) ||
        !within(b.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z) || !within(t.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) ||
        !within(t.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) || !within(t.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z))
        return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<uint64_t>(t.x) * t.y * t.z > maxThreads || dynamic > function.dynamicLimit)
        return CUDA_ERROR_INVALID_VALUE;
    return t.x * t.y * t.z > kernel->threads ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

namespace {

// Run is one execution: its blocks are taken by whoever is free.
struct Run {
    const Launch &launch;
    const Work work;
    std::atomic<uint64_t> next; // the first block that nobody has taken
    std::atomic<CUresult> error{CUDA_SUCCESS};

    void takeBlocks();
    void runBlock(uint64_t index);
};

void Run::takeBlocks() {
    const Work before = currentWork;
    currentWork = work;
    const uint64_t count = launch.shape.blockCount(), chunk = std::max<uint64_t>(1, count / 256);
    for (uint64_t first = next.fetch_add(chunk); first < count; first = next.fetch_add(chunk))
        for (uint64_t i = first; i < std::min(first + chunk, count) && error == CUDA_SUCCESS; i++) runBlock(i);
    currentWork = before;
}

void Run::runBlock(uint64_t index) {
    Block &block = Block::ofThisThread();
    const Failure failure =
        block.run(*launch.kernel, launch.argument.data(), launch.shape, index, launch.dynamic);
    if (failure.error == CUDA_SUCCESS) return;
    error = failure.error;
    if (failure.kind)
        findings().add(failure.kind, std::string("kernel ") + launch.kernel->name + ": " + failure.text);
}

} // namespace

CUresult Launch::run() const {
    const uint64_t count = shape.blockCount(), last = lastBlocks;
    Run run{*this, currentWork, {last > 0 && last < count ? count - last : 0}};
    if (count == 1)
        run.takeBlocks();
    else
        processors().runOnAll([&] { run.takeBlocks(); });
    return run.error;
}

} // namespace emulator
