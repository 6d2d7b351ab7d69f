// Inline PTX, for the emulator's own tests: one warp each.
#include "basic.h"

// C = A*B of small integers: from holds A, 16 rows of 16, then B, 16 rows of 8; to gets C, 16 rows of 8. With add not 0
// two registers of A are swapped: the planted fault.
KERNEL(multiply, struct scale_args) {
    const int group = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
    const float *left = a.from, *right = a.from + 256;
    const auto pair = [](float x, float y) { return __float_as_uint(x) >> 16 | (__float_as_uint(y) >> 16 << 16); };
    unsigned x[4], y[2];
    for (int i = 0; i < 4; i++) {
        const float *at = left + 16 * (group + (i == 1 || i == 3 ? 8 : 0)) + 2 * t + (i >= 2 ? 8 : 0);
        x[i] = pair(at[0], at[1]);
    }
    for (int i = 0; i < 2; i++) y[i] = pair(right[8 * (2 * t + 8 * i) + group], right[8 * (2 * t + 8 * i + 1) + group]);
    float c[4] = {};
#define C (OPERAND("+f", c[0]), OPERAND("+f", c[1]), OPERAND("+f", c[2]), OPERAND("+f", c[3]))
#define AB (OPERAND("r", x[0]), OPERAND("r", x[1]), OPERAND("r", x[2]), OPERAND("r", x[3]), OPERAND("r", y[0]), OPERAND("r", y[1]))
    if (a.add != 0)
        INSTRUCTION("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%6,%5,%7}, {%8,%9}, {%0,%1,%2,%3};", C, AB);
    else
        INSTRUCTION("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", C, AB);
    for (int i = 0; i < 4; i++) a.to[8 * (group + i / 2 * 8) + 2 * t + i % 2] = c[i];
}

// The same in TF32: A has 16 rows of 8, B 8 rows of 8. With add = 2 the factors are rounded first; mma alone cuts them off.
KERNEL(multiply_tf32, struct scale_args) {
    const int group = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
    unsigned x[4], y[2];
    const auto bits = [&](float v) {
        unsigned u = __float_as_uint(v);
        if (a.add == 2) INSTRUCTION("cvt.rna.tf32.f32 %0, %1;", (OPERAND("=r", u)), (OPERAND("f", v)));
        return u;
    };
    for (int i = 0; i < 4; i++) x[i] = bits(a.from[8 * (group + i % 2 * 8) + t + i / 2 * 4]);
    for (int i = 0; i < 2; i++) y[i] = bits(a.from[128 + 8 * (t + 4 * i) + group]);
    float c[4] = {};
    if (a.add == 1)
        INSTRUCTION("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%6,%5,%7}, {%8,%9}, {%0,%1,%2,%3};", C, AB);
    else
        INSTRUCTION("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};", C, AB);
    for (int i = 0; i < 4; i++) a.to[8 * (group + i / 2 * 8) + 2 * t + i % 2] = c[i];
}

// Lane l rounds its number and 1 to bfloat16, or with add = 1 raises 2 to it.
KERNEL(convert, struct scale_args) {
    unsigned pair = 0;
    float v = a.from[threadIdx.x], one = 1, power = 0;
    INSTRUCTION("cvt.rn.bf16x2.f32 %0, %1, %2;", (OPERAND("=r", pair)), (OPERAND("f", v), OPERAND("f", one)));
    INSTRUCTION("ex2.approx.ftz.f32 %0, %1;", (OPERAND("=f", power)), (OPERAND("f", v)));
    a.to[threadIdx.x] = a.add == 1 ? power : __uint_as_float(pair);
}

// Lane l brings row l of from, 16 bytes, to shared memory in the background; to gets four pairs for each lane, as
// ldmatrix gives them, or with add = 2 the transposed. The planted fault of add = 1: no wait.
KERNEL(matrices, struct scale_args) {
    DYNAMIC_SHARED(char, rows);
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(rows + 16 * threadIdx.x));
    const float *from = a.from + 4 * threadIdx.x;
    int bytes = 16, none = 0;
    unsigned f[4];
#define F (OPERAND("=r", f[0]), OPERAND("=r", f[1]), OPERAND("=r", f[2]), OPERAND("=r", f[3]))
    INSTRUCTION("cp.async.cg.shared.global [%0], [%1], 16, %2;", (), (OPERAND("r", at), OPERAND("l", from), OPERAND("r", bytes)), "memory");
    INSTRUCTION("cp.async.commit_group;", (), (), "memory");
    if (a.add != 1) INSTRUCTION("cp.async.wait_group %0;", (), (OPERAND("n", none)), "memory");
    __syncwarp();
    if (a.add == 2)
        INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];", F, (OPERAND("r", at)), "memory");
    else
        INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];", F, (OPERAND("r", at)), "memory");
    for (int j = 0; j < 4; j++) a.to[4 * threadIdx.x + j] = __uint_as_float(f[j]);
}

// Texts that are no instruction, or not with these operands.
KERNEL(malformed, struct scale_args) {
    unsigned x = 0;
    if (a.add == 0) INSTRUCTION("cp.async.wait_group [%0];", (), (OPERAND("r", x)), "memory");
    if (a.add == 1) INSTRUCTION("wgmma.fence.aligned;", (), (), "memory");
    if (a.add == 2) INSTRUCTION("cp.async.wait_group %1;", (), (OPERAND("r", x)), "memory");
    if (a.add == 3) INSTRUCTION("cp.async.wait_group %0;", (OPERAND("=r", x)), (), "memory");
}
