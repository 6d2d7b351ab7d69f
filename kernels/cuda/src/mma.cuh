// Tensor cores, matrix loads and asynchronous copies: inline PTX, and for the emulated GPU the same in plain C++, by the
// fragment layouts of the PTX ISA (sections on mma.m16n8k16 and ldmatrix).
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

#ifndef PLIMSOLL_EMULATED

// multiply_add: c += a*b for A 16x16 and B 16x8.
INLINE void multiply_add(float (&c)[4], const fragment &a, unsigned b0, unsigned b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		: "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

// load_matrices loads four 8x8 matrices; lanes 8j to 8j+7 give the addresses of the rows of matrix j. A lane gets of each
// matrix row lane/4, elements 2(lane%4) and the next; transposed, of the transposed matrix.
INLINE fragment load_matrices(const bf16 *row) {
	fragment f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3]) : "r"(at) : "memory");
	return f;
}
INLINE fragment load_transposed(const bf16 *row) {
	fragment f;
	unsigned at = (unsigned)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		: "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3]) : "r"(at) : "memory");
	return f;
}

// copy_async copies 16 bytes to shared memory in the background, or zeros.
INLINE void copy_async(bf16 *to, const bf16 *from, bool zero) {
	unsigned at = (unsigned)__cvta_generic_to_shared(to);
	int bytes = zero ? 0 : 16;
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
}

// end_group makes a group of the thread's copies so far; wait_groups waits until at most N groups are under way.
INLINE void end_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N> INLINE void wait_groups() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }

#else

INLINE int lane_id() { return (threadIdx.x + threadIdx.y * blockDim.x) % 32; }

// products of the two halves, added.
INLINE float products(unsigned x, unsigned y) { return low_half(x) * low_half(y) + high_half(x) * high_half(y); }

INLINE void multiply_add(float (&c)[4], const fragment &a, unsigned b0, unsigned b1) {
	int lane = lane_id(), group = lane / 4, t = lane % 4;
	u64 upper = (u64)a.r[0] | (u64)a.r[2] << 32, lower = (u64)a.r[1] | (u64)a.r[3] << 32, right = (u64)b0 | (u64)b1 << 32;
	for (int s = 0; s < 4; s++) {
		u64 rows[2] = {__shfl_sync(0xffffffffu, upper, group * 4 + s), __shfl_sync(0xffffffffu, lower, group * 4 + s)};
		u64 columns[2] = {__shfl_sync(0xffffffffu, right, 8 * t + s), __shfl_sync(0xffffffffu, right, 8 * t + 4 + s)};
		for (int i = 0; i < 4; i++) {
			u64 x = rows[i / 2], y = columns[i % 2];
			c[i] += products((unsigned)x, (unsigned)y) + products((unsigned)(x >> 32), (unsigned)(y >> 32));
		}
	}
}

INLINE const bf16 *row_of(const bf16 *mine, int lane) { return (const bf16 *)__shfl_sync(0xffffffffu, (u64)mine, lane); }

INLINE fragment load_matrices(const bf16 *row) {
	int lane = lane_id();
	fragment f;
	for (int j = 0; j < 4; j++) {
		const bf16 *from = row_of(row, 8 * j + lane / 4) + 2 * (lane % 4);
		f.r[j] = from[0].bits | (unsigned)from[1].bits << 16;
	}
	return f;
}
INLINE fragment load_transposed(const bf16 *row) {
	int lane = lane_id();
	fragment f;
	for (int j = 0; j < 4; j++) {
		const bf16 *first = row_of(row, 8 * j + 2 * (lane % 4)), *second = row_of(row, 8 * j + 2 * (lane % 4) + 1);
		f.r[j] = first[lane / 4].bits | (unsigned)second[lane / 4].bits << 16;
	}
	return f;
}

INLINE void copy_async(bf16 *to, const bf16 *from, bool zero) { *(uint4 *)to = zero ? make_uint4(0, 0, 0, 0) : *(const uint4 *)from; }
INLINE void end_group() {}
template <int N> INLINE void wait_groups() {}

#endif
#endif
