// Tensor cores, matrix loads and asynchronous copies: inline PTX, with the fragment layouts of the PTX ISA (sections on
// mma.m16n8k16 and ldmatrix).
#ifndef PLIMSOLL_MMA_CUH
#define PLIMSOLL_MMA_CUH

#include "plimsoll.cuh"

// With group = lane/4 and t = lane%4, a lane of a warp holds these values of bf16.
//   * Of A (16 x 16): a[0] rows group, a[1] group+8, inner 2t and 2t+1; a[2], a[3] the same 8 further.
//   * Of B (16 x 8): b[0] inner 2t and 2t+1, b[1] 8 further, of column group.
//   * Of C (16 x 8): c[0], c[1] row group, columns 2t and 2t+1; c[2], c[3] row group+8.
// The layout of tf32 is the same in bytes, one value where two of bf16 are. A is 16 x 8, B 8 x 8; inner t, and 4 further.
template <typename E> struct fragment {
	unsigned r[4];
};

#define SUMS(c) (OPERAND("+f", c[0]), OPERAND("+f", c[1]), OPERAND("+f", c[2]), OPERAND("+f", c[3]))
#define FACTORS(a, b0, b1) \
	(OPERAND("r", a.r[0]), OPERAND("r", a.r[1]), OPERAND("r", a.r[2]), OPERAND("r", a.r[3]), OPERAND("r", b0), OPERAND("r", b1))

// multiply_add: c += a*b.
INLINE void multiply_add(float (&c)[4], const fragment<bf16> &a, unsigned b0, unsigned b1) {
	INSTRUCTION("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};",
		SUMS(c), FACTORS(a, b0, b1));
}
INLINE void multiply_add(float (&c)[4], const fragment<tf32> &a, unsigned b0, unsigned b1) {
	INSTRUCTION("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};",
		SUMS(c), FACTORS(a, b0, b1));
}

#define FOUR(f) (OPERAND("=r", f.r[0]), OPERAND("=r", f.r[1]), OPERAND("=r", f.r[2]), OPERAND("=r", f.r[3]))

// load_matrices loads four matrices of 8 rows of 16 bytes; lanes 8j to 8j+7 give the addresses of the rows of matrix j. A
// lane gets of each matrix row lane/4, bytes 4(lane%4) to 4(lane%4)+3; transposed, bf16 of the transposed matrix.
template <typename E> INLINE fragment<E> load_matrices(const E *row) {
	fragment<E> f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];", FOUR(f), (OPERAND("r", at)), "memory");
	return f;
}
INLINE fragment<bf16> load_transposed(const bf16 *row) {
	fragment<bf16> f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	INSTRUCTION("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];", FOUR(f), (OPERAND("r", at)), "memory");
	return f;
}

// rounded_bits returns the bits of a float32 rounded to TF32: mma would cut off the bits that it does not use.
INLINE unsigned rounded_bits(unsigned exact) {
	unsigned bits;
	float v = __uint_as_float(exact);
	INSTRUCTION("cvt.rna.tf32.f32 %0, %1;", (OPERAND("=r", bits)), (OPERAND("f", v)));
	return bits;
}

// round_factors rounds what comes from the image or a gradient; packed weights are rounded already.
INLINE fragment<bf16> round_factors(fragment<bf16> f) { return f; }
INLINE fragment<tf32> round_factors(fragment<tf32> f) {
	for (int i = 0; i < 4; i++) f.r[i] = rounded_bits(f.r[i]);
	return f;
}

// rounded_pair is two values rounded to bfloat16, as bf16_bits does, side by side.
INLINE unsigned rounded_pair(float low, float high) {
	unsigned bits;
	INSTRUCTION("cvt.rn.bf16x2.f32 %0, %1, %2;", (OPERAND("=r", bits)), (OPERAND("f", high), OPERAND("f", low)));
	return bits;
}

// power is 2^v, within 2^-22 of it, and 0 where that is subnormal.
INLINE float power(float v) {
	float result;
	INSTRUCTION("ex2.approx.ftz.f32 %0, %1;", (OPERAND("=f", result)), (OPERAND("f", v)));
	return result;
}

// left_across and right_across load A, or two B side by side, from a slab whose rows are inner indices, width apart.
INLINE fragment<bf16> left_across(const bf16 *slab, int width, int lane) {
	return load_transposed(slab + (lane / 16 * 8 + lane % 8) * width + lane / 8 % 2 * 8);
}
INLINE fragment<bf16> right_across(const bf16 *slab, int width, int lane) {
	return load_transposed(slab + lane % 16 * width + lane / 16 * 8);
}
INLINE fragment<tf32> left_across(const tf32 *slab, int width, int lane) {
	fragment<tf32> f;
	for (int i = 0; i < 4; i++) f.r[i] = rounded_bits(slab[(lane % 4 + i / 2 * 4) * width + lane / 4 + i % 2 * 8].bits);
	return f;
}
INLINE fragment<tf32> right_across(const tf32 *slab, int width, int lane) {
	fragment<tf32> f;
	for (int i = 0; i < 4; i++) f.r[i] = rounded_bits(slab[(lane % 4 + i % 2 * 4) * width + lane / 4 + i / 2 * 8].bits);
	return f;
}

// copy_async copies 16 bytes to shared memory in the background, or zeros.
INLINE void copy_async(void *to, const void *from, bool zero) {
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
