// Tensor cores, matrix loads and asynchronous copies: inline PTX, with the fragment layouts of the PTX ISA (sections on
// mma.m16n8k16 and ldmatrix).
#ifndef PLIMSOLL_MMA_CUH
#define PLIMSOLL_MMA_CUH

#include "plimsoll.cuh"

// With group = lane/4 and t = lane%4, a lane of a warp holds
//   of A (16 x 16): a[0] rows group, a[1] group+8, inner 2t and 2t+1; a[2], a[3] the same 8 further;
//   of B (16 x 8): b[0] inner 2t and 2t+1, b[1] 8 further, of column group;
//   of C (16 x 8): c[0], c[1] row group, columns 2t and 2t+1; c[2], c[3] row group+8.
struct fragment {
	unsigned r[4];
};

// multiply_add: c += a*b for A 16x16 and B 16x8.
INLINE void multiply_add(float (&c)[4], const fragment &a, unsigned b0, unsigned b1) {
	INSTRUCTION("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};",
		(OPERAND("+f", c[0]), OPERAND("+f", c[1]), OPERAND("+f", c[2]), OPERAND("+f", c[3])),
		(OPERAND("r", a.r[0]), OPERAND("r", a.r[1]), OPERAND("r", a.r[2]), OPERAND("r", a.r[3]), OPERAND("r", b0), OPERAND("r", b1)));
}

#define FOUR(f) (OPERAND("=r", f.r[0]), OPERAND("=r", f.r[1]), OPERAND("=r", f.r[2]), OPERAND("=r", f.r[3]))

// load_matrices loads four 8x8 matrices; lanes 8j to 8j+7 give the addresses of the rows of matrix j. A lane gets of each
// matrix row lane/4, elements 2(lane%4) and the next; transposed, of the transposed matrix.
INLINE fragment load_matrices(const bf16 *row) {
	fragment f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];", FOUR(f), (OPERAND("r", at)), "memory");
	return f;
}
INLINE fragment load_transposed(const bf16 *row) {
	fragment f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];", FOUR(f), (OPERAND("r", at)), "memory");
	return f;
}

// copy_async copies 16 bytes to shared memory in the background, or zeros.
INLINE void copy_async(bf16 *to, const bf16 *from, bool zero) {
	unsigned at = (unsigned)__cvta_generic_to_shared(to);
	int bytes = zero ? 0 : 16;
	INSTRUCTION("cp.async.cg.shared.global [%0], [%1], 16, %2;", (), (OPERAND("r", at), OPERAND("l", from), OPERAND("r", bytes)), "memory");
}

// end_group makes a group of the thread's copies so far; wait_groups waits until at most N groups are under way.
INLINE void end_group() { INSTRUCTION("cp.async.commit_group;", (), (), "memory"); }
template <int N> INLINE void wait_groups() {
	constexpr int n = N;
	INSTRUCTION("cp.async.wait_group %0;", (), (OPERAND("n", n)), "memory");
}

#endif
