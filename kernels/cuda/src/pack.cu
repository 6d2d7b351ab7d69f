// What stands before and behind products: weights packed into panels, and partial results added up.
#include "conv.cuh"

// weight_at returns the offset of the weight for inner index e at the cursor's tap and a column of a view, or -1.
INLINE i64 weight_at(const geometry &g, const view &v, const cursor &c, int e, int column) {
	if (e >= v.inner || column >= v.columns) return -1;
	int width = g.o / g.groups, depth = g.c / g.groups, within = g.backward ? width : depth;
	int tap = v.joined ? e / within : c.w;
	int channel = v.joined ? e % within : e;
	int o = v.group * width + (g.backward ? channel : column), i = g.backward ? column : channel;
	int th = v.h.first + c.h * v.h.stride, tw = v.w.first + tap * v.w.stride;
	return (((i64)o * g.kh + th) * g.kw + tw) * depth + i;
}

// pack: by panel and slab; within a slab by inner index, then column (f32), or by column, then inner index (for tensor cores).
// grid: x elements of a slab, y slabs, z panels.
template <typename T, bool INNER_FIRST> INLINE void pack(const pack_args &a) {
	const geometry &g = a.g;
	view v = view_of(g, blockIdx.z * g.splits);
	int at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at >= a.depth * g.columns) return;
	int slabs = slabs_of(v, a.depth);
	for (int slab = blockIdx.y; slab < slabs; slab += gridDim.y) {
		cursor c = cursor_at(v, slab, a.depth);
		int e = INNER_FIRST ? at / g.columns : at % a.depth, column = INNER_FIRST ? at % g.columns : at / a.depth;
		i64 from = weight_at(g, v, c, c.e + e, column);
		T *to = GLOBAL(T, a.packed) + ((i64)v.panel * g.slabs + slab) * a.depth * g.columns + at;
		float w = from < 0 ? 0 : GLOBAL(const float, a.weight)[from];
		put(to, rounded(w, a.round));
	}
}
KERNEL(pack_f32, struct pack_args) { pack<float, true>(a); }
KERNEL(pack_bf16, struct pack_args) { pack<bf16, false>(a); }
KERNEL(pack_tf32, struct pack_args) { pack<float, false>(a); }

// sum_parts: out (+)= bias + the partial results, in order.
template <typename T> INLINE void sum_parts(const sum_args &a) {
	stream<4>(a.n, [&](i64 i, i64 left) {
		values<4> x, part;
		load_some(x, GLOBAL(const float, a.partial) + i, left);
		for (int s = 1; s < a.splits; s++) {
			const float *from = GLOBAL(const float, a.partial) + s * a.n + i;
			if (a.n % 4 == 0) load(part, from);
			else for (int k = 0; k < 4; k++) part.v[k] = k < left ? from[k] : 0;
#pragma unroll
			for (int k = 0; k < 4; k++) x.v[k] += part.v[k];
		}
		for (int k = 0; a.bias && k < 4; k++)
			if (k < left) x.v[k] += GLOBAL(const float, a.bias)[(i + k) % a.columns];
		deposit(GLOBAL(T, a.out) + i, x, left, a.add);
	});
}
INSTANCES(sum_parts, sum_args)
