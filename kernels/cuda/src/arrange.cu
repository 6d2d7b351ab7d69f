// Elements in another order, and parameters that lie on rows: what brings images to sequences and back, and what they are shifted and scaled by.
#include "plimsoll.cuh"

// place_of is where the loops find element i.
INLINE i64 place_of(const arrange_args &a, i64 i) {
	i64 at = a.from;
#pragma unroll
	for (int k = MOST_LOOPS - 1; k > 0; k--) {
		if (k >= a.loops) continue;
		i64 rest = i / a.count[k];
		at += (i - rest * a.count[k]) * a.stride[k];
		i = rest;
	}
	return at + i * a.stride[0];
}

// arrange_forward: out = in at the places.
template <typename T> INLINE void arrange_forward(const arrange_args &a) {
	stream<1>(a.n, [&](i64 i, i64) { GLOBAL(T, a.out)[i] = GLOBAL(const T, a.in)[place_of(a, i)]; });
}
INSTANCES(arrange_forward, arrange_args)

// arrange_backward: out (+)= in, at the places.
template <typename T> INLINE void arrange_backward(const arrange_args &a) {
	stream<1>(a.n, [&](i64 i, i64) {
		values<1> x;
		load(x, GLOBAL(const T, a.in) + i);
		deposit(GLOBAL(T, a.out) + place_of(a, i), x, 1, a.add);
	});
}
INSTANCES(arrange_backward, arrange_args)

// weigh_rows: y (+)= x + weight, x * weight, or weight where there is no x.
template <typename T> INLINE void weigh_rows(const weigh_args &a) {
	stream<1>(a.rows * a.width, [&](i64 i, i64) {
		i64 r = i / a.width, c = i - r * a.width;
		values<1> v = {{GLOBAL(const float, a.weight)[c]}}, x;
		if (a.x) {
			load(x, GLOBAL(const T, a.x) + r * a.x_stride + c);
			v.v[0] = a.multiply ? x.v[0] * v.v[0] : x.v[0] + v.v[0];
		}
		deposit(GLOBAL(T, a.y) + r * a.y_stride + c, v, 1, a.add);
	});
}
INSTANCES(weigh_rows, weigh_args)

// weight_sums: part[chunk][c] = the sum over the chunk's rows of y, or of y*x. Blocks take columns and chunks.
template <typename T> INLINE void weight_sums(const weigh_args &a) {
	i64 c = (i64)blockIdx.x * STREAM_THREADS + threadIdx.x, r0 = blockIdx.y * a.chunk_rows, r1 = r0 + a.chunk_rows < a.rows ? r0 + a.chunk_rows : a.rows;
	if (c >= a.width) return;
	double sum = 0;
	for (i64 r = r0; r < r1; r++) {
		values<1> y, x = {{1}};
		load(y, GLOBAL(const T, a.y) + r * a.y_stride + c);
		if (a.x) load(x, GLOBAL(const T, a.x) + r * a.x_stride + c);
		sum += y.v[0] * x.v[0];
	}
	GLOBAL(double, a.part)[blockIdx.y * a.width + c] = sum;
}
INSTANCES(weight_sums, weigh_args)

// weight_total: weight (+)= the sum of the chunks.
KERNEL(weight_total, struct weigh_args) {
	i64 c = (i64)blockIdx.x * STREAM_THREADS + threadIdx.x;
	if (c >= a.width) return;
	double sum = 0;
	for (i64 k = 0; k < a.chunks; k++) sum += GLOBAL(const double, a.part)[k * a.width + c];
	values<1> v = {{(float)sum}};
	deposit(GLOBAL(float, a.weight) + c, v, 1, a.add);
}

// gate_forward: y = x * gate of the sample and channel.
template <typename T> INLINE void gate_forward(const gate_args &a) {
	stream<1>(a.samples * a.rows * a.channels, [&](i64 i, i64) {
		values<1> x, g;
		load(x, GLOBAL(const T, a.x) + i);
		load(g, GLOBAL(const T, a.gate) + i / (a.rows * a.channels) * a.channels + i % a.channels);
		x.v[0] *= g.v[0];
		store(GLOBAL(T, a.y) + i, x);
	});
}
INSTANCES(gate_forward, gate_args)

enum { GATE_CHANNELS = 32, GATE_ROWS = STREAM_THREADS / GATE_CHANNELS };

// gate_backward: dx (+)= dy * gate, dgate (+)= the sum over rows of dy * x. A block is some channels of a sample; dx may lie on dy or x.
template <typename T> INLINE void gate_backward(const gate_args &a) {
	__shared__ double parts[GATE_ROWS][GATE_CHANNELS];
	i64 blocks = (a.channels + GATE_CHANNELS - 1) / GATE_CHANNELS, n = blockIdx.x / blocks;
	int lane = threadIdx.x % GATE_CHANNELS, row = threadIdx.x / GATE_CHANNELS;
	i64 c = blockIdx.x % blocks * GATE_CHANNELS + lane;
	double sum = 0;
	if (c < a.channels) {
		values<1> gate;
		load(gate, GLOBAL(const T, a.gate) + n * a.channels + c);
		for (i64 r = row; r < a.rows; r += GATE_ROWS) {
			i64 i = (n * a.rows + r) * a.channels + c;
			values<1> dy, x;
			load(dy, GLOBAL(const T, a.dy) + i);
			load(x, GLOBAL(const T, a.x) + i);
			sum += dy.v[0] * x.v[0];
			dy.v[0] *= gate.v[0];
			if (a.dx) deposit(GLOBAL(T, a.dx) + i, dy, 1, a.add_x);
		}
	}
	parts[row][lane] = sum;
	__syncthreads();
	if (row || c >= a.channels || !a.dgate) return;
	for (int k = 1; k < GATE_ROWS; k++) sum += parts[k][lane];
	values<1> v = {{(float)sum}};
	deposit(GLOBAL(T, a.dgate) + n * a.channels + c, v, 1, a.add_gate);
}
INSTANCES(gate_backward, gate_args)
