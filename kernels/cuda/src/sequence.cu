// Embeddings, norms of rows and rotary positions.
#include "plimsoll.cuh"

enum { ROW_THREADS = 256 };

// total adds up what the threads of a block have, in an order that depends on nothing; every thread gets it.
INLINE float total(float v) {
	__shared__ float sums[ROW_THREADS];
	int t = threadIdx.x;
	__syncthreads();
	sums[t] = v;
	__syncthreads();
	for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
		if (t < half) sums[t] += sums[t + half];
		__syncthreads();
	}
	return sums[0];
}

// embed_forward: a block takes one token after the other.
template <typename T> INLINE void embed_forward(const embed_args &a) {
	for (int r = blockIdx.x; r < a.tokens; r += gridDim.x) {
		int token = GLOBAL(const int, a.x)[r];
		bool known = token >= 0 && token < a.vocabulary;
		for (int c = threadIdx.x; c < a.width; c += ROW_THREADS) {
			float v = known ? GLOBAL(const float, a.weight)[(i64)token * a.width + c] : __uint_as_float(0x7fc00000u);
			if (a.position) v += GLOBAL(const float, a.position)[(i64)(a.numbers ? GLOBAL(const int, a.numbers)[r] : r % a.length) * a.width + c];
			put(GLOBAL(T, a.y) + (i64)r * a.width + c, v);
		}
	}
}
INSTANCES(embed_forward, embed_args)

// embed_numbers: a block takes one sample after the other, whose tokens get the numbers of their positions: a thread has some that follow
// one another.
KERNEL(embed_numbers, struct embed_args) {
	__shared__ int counts[ROW_THREADS];
	int t = threadIdx.x, each = (a.length + ROW_THREADS - 1) / ROW_THREADS, from = t * each, to = from + each < a.length ? from + each : a.length;
	for (i64 n = blockIdx.x; n * a.length < a.tokens; n += gridDim.x) {
		const int *x = GLOBAL(const int, a.x) + n * a.length;
		int counted = 0;
		for (int i = from; i < to; i++) counted += x[i] != a.uncounted;
		__syncthreads();
		counts[t] = counted;
		__syncthreads();
		counted = a.uncounted;
		for (int i = 0; i < t; i++) counted += counts[i];
		for (int i = from; i < to; i++) GLOBAL(int, a.numbers)[n * a.length + i] = x[i] == a.uncounted ? a.uncounted : ++counted;
	}
}

// The gradient of the table sorts the rows by their tokens first: a stable radix sort without atomics, so that each token's rows follow
// one another in ascending order. A pass sorts by one digit of the keys. Its blocks take chunks of rows, and a block's warps equal shares
// of the chunk, one after the other.
enum { SORT_WARPS = ROW_THREADS / 32, SORT_BITS = 8, SORT_DIGITS = 1 << SORT_BITS };

// key_of returns the key that rows are sorted by: the token, or the size of the vocabulary for tokens that are not in it.
INLINE int key_of(const embed_args &a, int row) {
	int token = GLOBAL(const int, a.x)[row];
	return token >= 0 && token < a.vocabulary ? token : a.vocabulary;
}

// sorting is one row of the pass, as one lane has it.
struct sorting {
	int row, digit;
	bool inside;    // of the warp's share
	unsigned same;  // lanes inside that have the same digit
	unsigned below; // those of them that come earlier
};

INLINE sorting sorting_at(const embed_args &a, int at, int end) {
	sorting s;
	s.inside = at < end;
	s.row = s.inside && a.unsorted ? GLOBAL(const int, a.unsorted)[at] : at;
	s.digit = s.inside ? key_of(a, s.row) >> a.shift & (SORT_DIGITS - 1) : 0;
	s.same = __ballot_sync(0xffffffffu, s.inside);
#pragma unroll
	for (int bit = 0; bit < SORT_BITS; bit++) {
		bool set = s.digit >> bit & 1;
		unsigned others = __ballot_sync(0xffffffffu, set);
		s.same &= set ? others : ~others;
	}
	s.below = s.same & ((1u << threadIdx.x % 32) - 1);
	return s;
}

// share_of_warp returns where the share of the thread's warp begins, and ends.
INLINE int2 share_of_warp(const embed_args &a) {
	int share = a.chunk / SORT_WARPS;
	i64 from = (i64)blockIdx.x * a.chunk + (i64)(threadIdx.x / 32) * share, to = from + share;
	return make_int2((int)(from < a.tokens ? from : a.tokens), (int)(to < a.tokens ? to : a.tokens));
}

// count_digits counts the digits of the warp's share.
INLINE void count_digits(const embed_args &a, int *counts) {
	int lane = threadIdx.x % 32;
	int2 share = share_of_warp(a);
	for (int d = lane; d < SORT_DIGITS; d += 32) counts[d] = 0;
	__syncwarp();
	for (int i = share.x; i < share.y; i += 32) {
		sorting s = sorting_at(a, i + lane, share.y);
		if (s.inside && !s.below) counts[s.digit] += __popc(s.same);
		__syncwarp();
	}
}

// sort_count leaves how often each digit is in the block's chunk: counts[block][digit].
KERNEL(sort_count, struct embed_args) {
	__shared__ int counts[SORT_WARPS][SORT_DIGITS];
	count_digits(a, counts[threadIdx.x / 32]);
	__syncthreads();
	for (int d = threadIdx.x; d < SORT_DIGITS; d += ROW_THREADS) {
		int sum = 0;
		for (int w = 0; w < SORT_WARPS; w++) sum += counts[w][d];
		GLOBAL(int, a.counts)[(i64)blockIdx.x * SORT_DIGITS + d] = sum;
	}
}

// sum_before returns the sum of what threads of lower index have.
INLINE int sum_before(int v) {
	__shared__ int sums[SORT_WARPS];
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = v, before = 0;
	for (int by = 1; by < 32; by *= 2) {
		int lower = __shfl_up_sync(0xffffffffu, sum, by);
		if (lane >= by) sum += lower;
	}
	if (lane == 31) sums[warp] = sum;
	__syncthreads();
	for (int w = 0; w < warp; w++) before += sums[w];
	return before + sum - v;
}

// sort_place puts the rows of the block's chunk into their places. Thread d looks for the first place of digit d.
KERNEL(sort_place, struct embed_args) {
	__shared__ int places[SORT_WARPS][SORT_DIGITS];
	static_assert(SORT_DIGITS == (int)ROW_THREADS, "a thread for each digit");
	int warp = threadIdx.x / 32, d = threadIdx.x, all = 0, place = 0;
	count_digits(a, places[warp]);
#pragma unroll 8
	for (int b = 0; b < (int)gridDim.x; b++) {
		int n = GLOBAL(const int, a.counts)[(i64)b * SORT_DIGITS + d];
		all += n;
		place += b < (int)blockIdx.x ? n : 0;
	}
	place += sum_before(all);
	for (int w = 0; w < SORT_WARPS; w++) { // sum_before has waited for all warps' counts
		int n = places[w][d];
		places[w][d] = place;
		place += n;
	}
	__syncthreads();
	int2 share = share_of_warp(a);
	for (int i = share.x; i < share.y; i += 32) {
		sorting s = sorting_at(a, i + threadIdx.x % 32, share.y);
		int to = places[warp][s.digit] + __popc(s.below);
		__syncwarp();
		if (s.inside && !s.below) places[warp][s.digit] += __popc(s.same);
		__syncwarp();
		if (s.inside) GLOBAL(int, a.order)[to] = s.row;
	}
}

// embed_starts: starts[token] is the first place of the sorted rows with this or a larger key. At index vocabulary, it is the number of
// rows of known tokens.
KERNEL(embed_starts, struct embed_args) {
	i64 token = (i64)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (token > a.vocabulary) return;
	int low = 0, high = a.tokens;
	while (low < high) {
		int middle = low + (high - low) / 2;
		if (key_of(a, GLOBAL(const int, a.order)[middle]) < token)
			low = middle + 1;
		else
			high = middle;
	}
	GLOBAL(int, a.starts)[token] = low;
}

enum { ADD_AT_ONCE = 4 }; // rows whose loads a thread has in flight

// add_rows adds V channels of rows to sum, in order; offset(i) is where those of the row i begin.
template <int V, typename T, typename F> INLINE void add_rows(values<V> &sum, const T *rows, int from, int to, F offset) {
	for (int i = from; i < to; i += ADD_AT_ONCE) {
		values<V> row[ADD_AT_ONCE];
#pragma unroll
		for (int j = 0; j < ADD_AT_ONCE; j++)
			if (j < to - i) load_floats(row[j], rows + offset(i + j));
#pragma unroll
		for (int j = 0; j < ADD_AT_ONCE; j++) {
			if (j >= to - i) continue;
#pragma unroll
			for (int k = 0; k < V; k++) sum.v[k] += row[j].v[k];
		}
	}
}

template <int V, typename T> INLINE void add_sorted(values<V> &sum, const embed_args &a, int from, int to, int c) {
	add_rows(sum, GLOBAL(const T, a.y), from, to, [&](int i) { return (i64)GLOBAL(const int, a.order)[i] * a.width + c; });
}

enum { PIECE = 64 }; // sorted rows whose sum is formed ahead where all have the same token

// embed_pieces: parts[piece] = the sum of the piece's rows, where one token has them all. Blocks are threadIdx.x channels (V each) and
// threadIdx.y pieces.
template <typename T, int V> INLINE void embed_pieces(const embed_args &a) {
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * V, pieces = a.tokens / PIECE;
	if (c >= a.width) return;
	for (i64 piece = (i64)blockIdx.y * blockDim.y + threadIdx.y; piece < pieces; piece += (i64)gridDim.y * blockDim.y) {
		int from = (int)piece * PIECE, key = key_of(a, GLOBAL(const int, a.order)[from]);
		if (key == a.vocabulary || key != key_of(a, GLOBAL(const int, a.order)[from + PIECE - 1])) continue;
		values<V> sum = {};
		add_sorted<V, T>(sum, a, from, from + PIECE, c);
		deposit_floats(GLOBAL(float, a.parts) + piece * a.width + c, sum, 0);
	}
}
CHANNEL_INSTANCES(embed_pieces, embed_args)

// embed_backward: weight (+)= the sum of the gradients of each token's rows: those ahead of its first whole piece, its pieces, the rest.
// Blocks are threadIdx.x channels (V each) and threadIdx.y tokens.
template <typename T, int V> INLINE void embed_backward(const embed_args &a) {
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
	if (c >= a.width) return;
	for (i64 token = (i64)blockIdx.y * blockDim.y + threadIdx.y; token < a.vocabulary; token += (i64)gridDim.y * blockDim.y) {
		int from = GLOBAL(const int, a.starts)[token], to = GLOBAL(const int, a.starts)[token + 1];
		if (token == a.fixed) from = to;
		if (from == to && a.add) continue;
		values<V> sum = {};
		int first = from / PIECE + (from % PIECE > 0), last = to / PIECE;
		if (first < last) {
			add_sorted<V, T>(sum, a, from, first * PIECE, c);
			add_rows(sum, GLOBAL(const float, a.parts), first, last, [&](int i) { return (i64)i * a.width + c; });
			from = last * PIECE;
		}
		add_sorted<V, T>(sum, a, from, to, c);
		deposit_floats(GLOBAL(float, a.weight) + token * a.width + c, sum, a.add);
	}
}
CHANNEL_INSTANCES(embed_backward, embed_args)

// position_backward: position (+)= the sum of the gradients of a position over the samples; those behind the end of the sequences get
// zeros. Blocks are threadIdx.x channels (V each) and threadIdx.y positions.
template <typename T, int V> INLINE void position_backward(const embed_args &a) {
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
	if (c >= a.width) return;
	for (i64 p = (i64)blockIdx.y * blockDim.y + threadIdx.y; p < a.positions; p += (i64)gridDim.y * blockDim.y) {
		values<V> sum = {};
		int samples = p < a.length ? a.tokens / a.length : 0;
		add_rows(sum, GLOBAL(const T, a.y), 0, samples, [&](int i) { return ((i64)i * a.length + p) * a.width + c; });
		deposit_floats(GLOBAL(float, a.position) + p * a.width + c, sum, a.add);
	}
}
CHANNEL_INSTANCES(position_backward, embed_args)

// rownorm_forward: a block takes one row after the other; y may lie on x. Without a bias there is no mean: RMSNorm.
template <typename T> INLINE void rownorm_forward(const rownorm_args &a) {
	for (i64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels;
		float mean = 0, sum = 0;
		for (int c = threadIdx.x; a.bias && c < a.channels; c += ROW_THREADS) sum += to_float(x[c]);
		if (a.bias) mean = total(sum) / (float)a.channels;
		sum = 0;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) sum += (to_float(x[c]) - mean) * (to_float(x[c]) - mean);
		float inverse = (float)(1 / sqrt((double)total(sum) / (double)a.channels + a.epsilon));
		if (a.mean && threadIdx.x == 0) GLOBAL(float, a.mean)[r] = mean;
		if (a.inverse && threadIdx.x == 0) GLOBAL(float, a.inverse)[r] = inverse;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			float v = (to_float(x[c]) - mean) * inverse * (GLOBAL(const float, a.weight)[c] + a.offset);
			put(GLOBAL(T, a.y) + r * a.channels + c, a.bias ? v + GLOBAL(const float, a.bias)[c] : v);
		}
	}
}
INSTANCES(rownorm_forward, rownorm_args)

// rownorm_backward: dx (+)= (g - mean(g) - h*mean(g*h))/std with g = dy*weight and h = (x - mean)/std. dx may lie on x or dy.
template <typename T> INLINE void rownorm_backward(const rownorm_args &a) {
	for (i64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
		const T *x = GLOBAL(const T, a.x) + r * a.channels, *dy = GLOBAL(const T, a.dy) + r * a.channels;
		const float *weight = GLOBAL(const float, a.weight);
		float mean = a.mean ? GLOBAL(const float, a.mean)[r] : 0, inverse = GLOBAL(const float, a.inverse)[r], sum = 0, product = 0;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			float g = to_float(dy[c]) * (weight[c] + a.offset);
			sum += g;
			product += g * (to_float(x[c]) - mean) * inverse;
		}
		sum = a.mean ? total(sum) / (float)a.channels : 0;
		product = total(product) / (float)a.channels;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			values<1> v = {{(to_float(dy[c]) * (weight[c] + a.offset) - sum - (to_float(x[c]) - mean) * inverse * product) * inverse}};
			deposit(GLOBAL(T, a.dx) + r * a.channels + c, v, 1, a.add_dx);
		}
	}
}
INSTANCES(rownorm_backward, rownorm_args)

// Rows that are whole vectors, of up to 32*HELD channels, are a warp's, whose lanes hold up to HELD channels each: so they are read once.
#define HELD_INSTANCES(name) \
	KERNEL_BOUNDS(name##_f32_h16, struct rownorm_args, 256, 1) { name<float, 16>(a); } \
	KERNEL_BOUNDS(name##_f32_h32, struct rownorm_args, 256, 1) { name<float, 32>(a); } \
	KERNEL_BOUNDS(name##_f32_h64, struct rownorm_args, 256, 1) { name<float, 64>(a); } \
	KERNEL_BOUNDS(name##_bf16_h16, struct rownorm_args, 256, 1) { name<bf16, 16>(a); } \
	KERNEL_BOUNDS(name##_bf16_h32, struct rownorm_args, 256, 1) { name<bf16, 32>(a); } \
	KERNEL_BOUNDS(name##_bf16_h64, struct rownorm_args, 256, 1) { name<bf16, 64>(a); }

enum { ROW_WARPS = ROW_THREADS / 32 };

// warp_total adds up what the lanes of a warp have; every lane gets the same bits.
INLINE float warp_total(float v) {
#pragma unroll
	for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
	return v;
}

// rownorm_forward_held: as rownorm_forward, a warp for each row.
template <typename T, int HELD> INLINE void rownorm_forward_held(const rownorm_args &a) {
	const int V = wide<T>::elements, N = HELD / V;
	int lane = threadIdx.x % 32;
	for (i64 r = (i64)blockIdx.x * ROW_WARPS + threadIdx.x / 32; r < a.rows; r += (i64)gridDim.x * ROW_WARPS) {
		values<V> x[N];
		float mean = 0, sum = 0;
#pragma unroll
		for (int j = 0; j < N; j++) {
			int c = (j * 32 + lane) * V;
			x[j] = values<V>{};
			if (c < a.channels) load(x[j], GLOBAL(const T, a.x) + r * a.channels + c);
		}
#pragma unroll
		for (int j = 0; j < N; j++)
#pragma unroll
			for (int k = 0; k < V; k++) sum += x[j].v[k];
		if (a.bias) mean = warp_total(sum) / (float)a.channels;
		sum = 0;
#pragma unroll
		for (int j = 0; j < N; j++) {
			if ((j * 32 + lane) * V >= a.channels) continue;
#pragma unroll
			for (int k = 0; k < V; k++) sum += (x[j].v[k] - mean) * (x[j].v[k] - mean);
		}
		float inverse = (float)(1 / sqrt((double)warp_total(sum) / (double)a.channels + a.epsilon));
		if (a.mean && lane == 0) GLOBAL(float, a.mean)[r] = mean;
		if (a.inverse && lane == 0) GLOBAL(float, a.inverse)[r] = inverse;
#pragma unroll
		for (int j = 0; j < N; j++) {
			int c = (j * 32 + lane) * V;
			if (c >= a.channels) continue;
			values<V> weight, bias = {};
			load_floats(weight, GLOBAL(const float, a.weight) + c);
			if (a.bias) load_floats(bias, GLOBAL(const float, a.bias) + c);
#pragma unroll
			for (int k = 0; k < V; k++) {
				float v = (x[j].v[k] - mean) * inverse * (weight.v[k] + a.offset);
				x[j].v[k] = a.bias ? v + bias.v[k] : v;
			}
			store(GLOBAL(T, a.y) + r * a.channels + c, x[j]);
		}
	}
}
HELD_INSTANCES(rownorm_forward_held)

// rownorm_backward_held: as rownorm_backward, a warp for each row. x and dy become h and g.
template <typename T, int HELD> INLINE void rownorm_backward_held(const rownorm_args &a) {
	const int V = wide<T>::elements, N = HELD / V;
	int lane = threadIdx.x % 32;
	for (i64 r = (i64)blockIdx.x * ROW_WARPS + threadIdx.x / 32; r < a.rows; r += (i64)gridDim.x * ROW_WARPS) {
		values<V> x[N], dy[N];
		float mean = a.mean ? GLOBAL(const float, a.mean)[r] : 0, inverse = GLOBAL(const float, a.inverse)[r], sum = 0, product = 0;
#pragma unroll
		for (int j = 0; j < N; j++) {
			int c = (j * 32 + lane) * V;
			if (c >= a.channels) continue;
			load(x[j], GLOBAL(const T, a.x) + r * a.channels + c);
			load(dy[j], GLOBAL(const T, a.dy) + r * a.channels + c);
		}
#pragma unroll
		for (int j = 0; j < N; j++) {
			int c = (j * 32 + lane) * V;
			if (c >= a.channels) continue;
			values<V> weight;
			load_floats(weight, GLOBAL(const float, a.weight) + c);
#pragma unroll
			for (int k = 0; k < V; k++) {
				x[j].v[k] = (x[j].v[k] - mean) * inverse;
				dy[j].v[k] *= weight.v[k] + a.offset;
				sum += dy[j].v[k];
				product += dy[j].v[k] * x[j].v[k];
			}
		}
		sum = warp_total(sum) / (float)a.channels;
		product = warp_total(product) / (float)a.channels;
		if (!a.mean) sum = 0;
#pragma unroll
		for (int j = 0; j < N; j++) {
			int c = (j * 32 + lane) * V;
			if (c >= a.channels) continue;
#pragma unroll
			for (int k = 0; k < V; k++) x[j].v[k] = (dy[j].v[k] - sum - x[j].v[k] * product) * inverse;
			deposit(GLOBAL(T, a.dx) + r * a.channels + c, x[j], V, a.add_dx);
		}
	}
}
HELD_INSTANCES(rownorm_backward_held)

enum { SUM_LANES = 32, SUM_ROWS = 32, SUM_AT_ONCE = 2 }; // of a block of rownorm_params; rows that a thread of rownorm_sums has in flight

// sum_block adds up what the threads of each channel have, in order, and writes it as part[chunk][which].
template <int V> INLINE void sum_block(const float *mine, float *shared, const rownorm_args &a, int which) {
	int width = blockDim.x * V, first = blockIdx.x * width;
#pragma unroll
	for (int k = 0; k < V; k++) shared[threadIdx.y * width + threadIdx.x * V + k] = mine[k];
	__syncthreads();
	for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < width && first + i < a.channels; i += ROW_THREADS) {
		double sum = 0;
		for (int y = 0; y < (int)blockDim.y; y++) sum += shared[y * width + i];
		GLOBAL(double, a.part)[((i64)blockIdx.y * 2 + which) * a.channels + first + i] = sum;
	}
	__syncthreads();
}

// rownorm_sums leaves a chunk's sums of dy*h and dy over its rows in part. A thread's sums are float32, those of threads are added in
// float64. Blocks are threadIdx.x channels (V each) and threadIdx.y rows.
template <typename T, int V> INLINE void rownorm_sums(const rownorm_args &a) {
	__shared__ float shared[ROW_THREADS * V];
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
	i64 from = (i64)blockIdx.y * a.chunk_rows, to = from + a.chunk_rows < a.rows ? from + a.chunk_rows : a.rows;
	float weight[V] = {0}, bias[V] = {0};
	for (i64 first = from + threadIdx.y; c < a.channels && first < to; first += SUM_AT_ONCE * blockDim.y) {
		values<V> x[SUM_AT_ONCE], dy[SUM_AT_ONCE];
#pragma unroll
		for (int j = 0; j < SUM_AT_ONCE; j++) {
			i64 r = first + j * (int)blockDim.y;
			if (r >= to) continue;
			load(x[j], GLOBAL(const T, a.x) + r * a.channels + c);
			load(dy[j], GLOBAL(const T, a.dy) + r * a.channels + c);
		}
#pragma unroll
		for (int j = 0; j < SUM_AT_ONCE; j++) {
			i64 r = first + j * (int)blockDim.y;
			if (r >= to) continue;
			float mean = a.mean ? GLOBAL(const float, a.mean)[r] : 0, inverse = GLOBAL(const float, a.inverse)[r];
#pragma unroll
			for (int k = 0; k < V; k++) {
				weight[k] += dy[j].v[k] * ((x[j].v[k] - mean) * inverse);
				bias[k] += dy[j].v[k];
			}
		}
	}
	sum_block<V>(weight, shared, a, 0);
	sum_block<V>(bias, shared, a, 1);
}
SUM_INSTANCES(rownorm_sums, rownorm_args)

// rownorm_params: dweight (+)= and dbias (+)= the sums of all chunks. SUM_ROWS threads share the chunks of a channel.
KERNEL_BOUNDS(rownorm_params, struct rownorm_args, SUM_LANES * SUM_ROWS, 1) {
	__shared__ double sums[SUM_ROWS][SUM_LANES];
	int c = blockIdx.x * SUM_LANES + threadIdx.x;
	u64 out = blockIdx.y ? a.dbias : a.dweight;
	double sum = 0;
	for (int q = threadIdx.y; c < a.channels && q < a.chunks; q += SUM_ROWS)
		sum += GLOBAL(const double, a.part)[((i64)q * 2 + blockIdx.y) * a.channels + c];
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y > 0 || c >= a.channels) return;
	for (int y = 1; y < SUM_ROWS; y++) sum += sums[y][threadIdx.x];
	float *to = GLOBAL(float, out) + c;
	*to = a.add_params ? *to + (float)sum : (float)sum;
}

// slowed returns the angle of a pair between two positions, as kernels.RotaryScaling has it.
INLINE double slowed(const rotary_args &a, double angle) {
	if (a.factor == 0) return angle;
	double kept = (a.turns * angle - a.low) / (a.high - a.low);
	kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
	return angle * ((1 - kept) / a.factor + kept);
}

// rotary_table writes cosine and sine of each position and pair.
KERNEL(rotary_table, struct rotary_args) {
	int half = a.half;
	i64 i = (i64)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (i >= (i64)a.length * half) return;
	double angle = (double)(i / half) * slowed(a, pow(a.ratio, (double)(i % half)));
	GLOBAL(float, a.table)[2 * i] = (float)cos(angle);
	GLOBAL(float, a.table)[2 * i + 1] = (float)(a.sign * sin(angle));
}

// rotary: a block takes one position of one sample after the other. out may lie on in.
template <typename T> INLINE void rotary(const rotary_args &a) {
	int half = a.half;
	for (i64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
		const T *in = GLOBAL(const T, a.in) + r * a.channels;
		T *out = GLOBAL(T, a.out) + r * a.channels;
		const float *table = GLOBAL(const float, a.table) + (r % a.length) * 2 * half;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			int i = c % a.dim;
			if (c >= a.heads * a.dim || i >= 2 * half) {
				deposit(out + c, values<1>{{to_float(in[c])}}, 1, a.add);
			} else if (i < half) {
				float x = to_float(in[c]), y = to_float(in[c + half]), cosine = table[2 * i], sine = table[2 * i + 1];
				deposit(out + c, values<1>{{x * cosine - y * sine}}, 1, a.add);
				deposit(out + c + half, values<1>{{y * cosine + x * sine}}, 1, a.add);
			}
		}
	}
}
INSTANCES(rotary, rotary_args)
