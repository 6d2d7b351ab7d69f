// Kernels for the emulator's own tests.
#include "basic.h"

KERNEL(scale, struct scale_args) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < a.count) a.to[i] = a.factor * a.from[i] + a.add;
}

// The sum of each block's elements, by halving in shared memory.
KERNEL(block_sum, struct scale_args) {
    __shared__ float part[1024];
    const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x * blockDim.x) + t;
    part[t] = i < a.count ? a.from[i] : 0;
    __syncthreads();
    for (int half = static_cast<int>(blockDim.x) / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) a.to[blockIdx.x] = part[0];
}

// The same without the barriers of the loop: the planted fault of a missing barrier.
KERNEL(block_sum_unsynchronized, struct scale_args) {
    __shared__ float part[1024];
    const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x * blockDim.x) + t;
    part[t] = i < a.count ? a.from[i] : 0;
    for (int half = static_cast<int>(blockDim.x) / 2; half > 0; half /= 2)
        if (t < half) part[t] += part[t + half];
    if (t == 0) a.to[blockIdx.x] = part[0];
}

// The same with shuffles: each warp's sum, then the warps' sums in dynamic shared memory.
KERNEL(warp_sum, struct scale_args) {
    DYNAMIC_SHARED(float, part);
    const int t = static_cast<int>(threadIdx.x), i = static_cast<int>(blockIdx.x * blockDim.x) + t;
    float sum = i < a.count ? a.from[i] : 0;
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (t % 32 == 0) part[t / 32] = sum;
    __syncthreads();
    if (t != 0) return;
    for (int w = 1; w < static_cast<int>(blockDim.x) / 32; w++) sum += part[w];
    a.to[blockIdx.x] = sum;
}

// Exchanges neighbours within a warp through memory, with and without the fence between.
KERNEL(warp_swap, struct scale_args) {
    __shared__ float lane[32];
    lane[threadIdx.x] = a.from[threadIdx.x];
    if (a.add != 0) __syncwarp();
    a.to[threadIdx.x] = lane[threadIdx.x ^ 1];
}

// Every lane intrinsic once; the results of lane l are to[8*l], to[8*l+1], ...
KERNEL(lanes, struct lanes_args) {
    const unsigned all = 0xffffffffu;
    const int lane = static_cast<int>(threadIdx.x);
    int *to = a.to + 8 * lane;
    to[0] = __shfl_sync(all, lane, 5);
    to[1] = __shfl_up_sync(all, lane, 3);
    to[2] = __shfl_down_sync(all, lane, 3);
    to[3] = __shfl_xor_sync(all, lane, 8);
    to[4] = __shfl_sync(all, lane, 2, 8);
    to[5] = __popc(__ballot_sync(all, lane % 3 == 0));
    to[6] = __any_sync(all, lane == 31);
    to[7] = __all_sync(all, lane < 31);
}

// Adds 1 to the counters with every kind of atomic, from all threads of all blocks.
KERNEL(count, struct count_args) {
    atomicAdd(a.integer, 1);
    atomicAdd(a.real, 1.0f);
    atomicAdd(a.wide, 1ull);
    atomicMax(a.most, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
}

// Half of the threads leave, the others wait for them.
KERNEL(deadlock, struct scale_args) {
    if (threadIdx.x >= blockDim.x / 2) return;
    __syncthreads();
    a.to[threadIdx.x] = 1;
}

// The two halves of the block wait in different lines.
KERNEL(divergent, struct scale_args) {
    if (threadIdx.x < blockDim.x / 2)
        __syncthreads();
    else
        __syncthreads();
    a.to[threadIdx.x] = 1;
}

KERNEL(trap, struct scale_args) {
    if (a.count == 0) __trap();
}

// Each block writes where it is: three dimensions of blocks and threads.
KERNEL(where, struct lanes_args) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    a.to[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(1000 * block + thread);
}

// Spins in arithmetic, so that a stream is busy for a while.
KERNEL_BOUNDS(spin, struct scale_args, 128, 1) {
    float x = a.factor;
    for (int i = 0; i < a.count; i++) x = x * 0.5f + 1.0f;
    a.to[0] = x;
}

// Like scale without the test of the bound: the planted fault of a write behind the end.
KERNEL(scale_all, struct scale_args) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    a.to[i] = a.factor * a.from[i] + a.add;
}
