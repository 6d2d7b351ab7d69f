// Asynchronous products of four warps, for the emulator's own tests.
#include "basic.h"

#define TEN(t) "%" t "0,%" t "1,%" t "2,%" t "3,%" t "4,%" t "5,%" t "6,%" t "7,%" t "8,%" t "9,"
#define D4(i) OPERAND("+f", d[i]), OPERAND("+f", d[i + 1]), OPERAND("+f", d[i + 2]), OPERAND("+f", d[i + 3])
#define D32 (D4(0), D4(4), D4(8), D4(12), D4(16), D4(20), D4(24), D4(28))
#define MULTIPLY(left, right, across) \
    INSTRUCTION("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TEN("") TEN("1") TEN("2") "%30,%31}, %32, %33, 1, 1, 1, " across ";", D32, \
                (OPERAND("l", left), OPERAND("l", right)), "memory")

enum { SIDE = 64, MATRIX = SIDE * SIDE * 2, NO_WAIT = 1, NO_PROXY_FENCE, NO_FENCE, REFILL, MISALIGNED, NO_SWIZZLE, WARPS_DIFFER, LANES_DIFFER, BEYOND, LATE_FENCE, ACROSS };

static void bring(unsigned to, const float *from) {
    int bytes = 16;
    INSTRUCTION("cp.async.cg.shared.global [%0], [%1], 16, %2;", (), (OPERAND("r", to), OPERAND("l", from), OPERAND("r", bytes)), "memory");
}

// D = A*B, 64 rows of 64: from holds A's rows and then B's columns, as they lie in shared memory; to gets the rows of D. With add = ACROSS
// they lie across, else add is the planted fault.
KERNEL(warpgroup, struct scale_args) {
    DYNAMIC_SHARED(char, memory);
    const int fault = static_cast<int>(a.add), thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    unsigned begin = (static_cast<unsigned>(__cvta_generic_to_shared(memory)) + 1023) / 1024 * 1024;
    if (fault == MISALIGNED) begin += 128;
    for (int i = thread; i < 2 * MATRIX / 16; i += static_cast<int>(blockDim.x)) bring(begin + 16 * i, a.from + 4 * i);
    int none = 0;
    if (fault == LATE_FENCE) INSTRUCTION("fence.proxy.async.shared::cta;", (), (), "memory");
    INSTRUCTION("cp.async.wait_group %0;", (), (OPERAND("n", none)), "memory");
    INSTRUCTION("cp.async.commit_group;", (), (), "memory");
    INSTRUCTION("cp.async.wait_group %0;", (), (OPERAND("n", none)), "memory");
    if (fault != NO_PROXY_FENCE && fault != LATE_FENCE) INSTRUCTION("fence.proxy.async.shared::cta;", (), (), "memory");
    __syncthreads();
    float d[32] = {};
    if (fault != NO_FENCE) INSTRUCTION("wgmma.fence.sync.aligned;", (), (), "memory");
    for (int k = 0; k < (fault == BEYOND ? 5 : 4); k++) {
        unsigned long long left = begin / 16 + (fault == ACROSS ? 128 : 2) * k | 1ull << 16 | 64ull << 32 | (fault == NO_SWIZZLE ? 0 : 1ull << 62);
        unsigned long long right = left + MATRIX / 16;
        if (fault == WARPS_DIFFER && warp == 2) right += 64;
        if (fault == LANES_DIFFER && lane == 3) right += 64;
        if (fault == ACROSS) MULTIPLY(left, right, "1, 1");
        else MULTIPLY(left, right, "0, 0");
    }
    INSTRUCTION("wgmma.commit_group.sync.aligned;", (), (), "memory");
    if (fault == REFILL) bring(begin + MATRIX + 16 * thread, a.from);
    if (fault != NO_WAIT) INSTRUCTION("wgmma.wait_group.sync.aligned %0;", (), (OPERAND("n", none)), "memory");
    for (int i = 0; i < 32; i++) a.to[SIDE * (16 * warp + lane / 4 + i / 2 % 2 * 8) + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
