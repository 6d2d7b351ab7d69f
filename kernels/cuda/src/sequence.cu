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
			if (a.position) v += GLOBAL(const float, a.position)[(i64)(r % a.length) * a.width + c];
			put(GLOBAL(T, a.y) + (i64)r * a.width + c, v);
		}
	}
}
INSTANCES(embed_forward, embed_args)

// embed_backward: weight += the gradients of each token. The block of a token's first occurrence adds all of them, in order; the
// others have nothing to do.
template <typename T> INLINE void embed_backward(const embed_args &a) {
	const int *x = GLOBAL(const int, a.x);
	for (int r = blockIdx.x; r < a.tokens; r += gridDim.x) {
		int token = x[r];
		float earlier = 0;
		for (int i = threadIdx.x; i < r; i += ROW_THREADS)
			if (x[i] == token) earlier = 1;
		if (total(earlier) > 0 || token < 0 || token >= a.vocabulary) continue;
		for (int c = threadIdx.x; c < a.width; c += ROW_THREADS) {
			float *to = GLOBAL(float, a.weight) + (i64)token * a.width + c, sum = 0;
			for (int i = r; i < a.tokens; i++)
				if (x[i] == token) sum += to_float(GLOBAL(const T, a.y)[(i64)i * a.width + c]);
			*to = a.add ? *to + sum : sum;
		}
	}
}
INSTANCES(embed_backward, embed_args)

// position_backward: a block takes one position after the other; those behind the end of the sequences get zeros.
template <typename T> INLINE void position_backward(const embed_args &a) {
	for (int p = blockIdx.x; p < a.positions; p += gridDim.x)
		for (int c = threadIdx.x; c < a.width; c += ROW_THREADS) {
			float *to = GLOBAL(float, a.position) + (i64)p * a.width + c, sum = 0;
			for (int r = p; p < a.length && r < a.tokens; r += a.length) sum += to_float(GLOBAL(const T, a.y)[(i64)r * a.width + c]);
			*to = a.add ? *to + sum : sum;
		}
}
INSTANCES(position_backward, embed_args)

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
			float v = (to_float(x[c]) - mean) * inverse * GLOBAL(const float, a.weight)[c];
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
			float g = to_float(dy[c]) * weight[c];
			sum += g;
			product += g * (to_float(x[c]) - mean) * inverse;
		}
		sum = a.mean ? total(sum) / (float)a.channels : 0;
		product = total(product) / (float)a.channels;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			values<1> v = {{(to_float(dy[c]) * weight[c] - sum - (to_float(x[c]) - mean) * inverse * product) * inverse}};
			deposit(GLOBAL(T, a.dx) + r * a.channels + c, v, 1, a.add_dx);
		}
	}
}
INSTANCES(rownorm_backward, rownorm_args)

enum { SUM_LANES = 32, SUM_ROWS = 8 }; // of a block of rownorm_sums

// rownorm_sums leaves a chunk's sums of dy*h and dy over its rows in part, in float64.
template <typename T> INLINE void rownorm_sums(const rownorm_args &a) {
	__shared__ double sums[2][SUM_ROWS][SUM_LANES];
	int c = blockIdx.x * SUM_LANES + threadIdx.x;
	i64 from = (i64)blockIdx.y * a.chunk_rows, to = from + a.chunk_rows < a.rows ? from + a.chunk_rows : a.rows;
	double weight = 0, bias = 0;
	for (i64 r = from + threadIdx.y; c < a.channels && r < to; r += SUM_ROWS) {
		float dy = to_float(GLOBAL(const T, a.dy)[r * a.channels + c]), mean = a.mean ? GLOBAL(const float, a.mean)[r] : 0;
		weight += dy * (to_float(GLOBAL(const T, a.x)[r * a.channels + c]) - mean) * GLOBAL(const float, a.inverse)[r];
		bias += dy;
	}
	sums[0][threadIdx.y][threadIdx.x] = weight;
	sums[1][threadIdx.y][threadIdx.x] = bias;
	__syncthreads();
	if (threadIdx.y > 1 || c >= a.channels) return;
	double sum = 0;
	for (int y = 0; y < SUM_ROWS; y++) sum += sums[threadIdx.y][y][threadIdx.x];
	GLOBAL(double, a.part)[((i64)blockIdx.y * 2 + threadIdx.y) * a.channels + c] = sum;
}
INSTANCES(rownorm_sums, rownorm_args)

// rownorm_params: dweight (+)= and dbias (+)= the sums of all chunks, in order.
KERNEL(rownorm_params, struct rownorm_args) {
	int c = blockIdx.x * ROW_THREADS + threadIdx.x;
	u64 out = blockIdx.y ? a.dbias : a.dweight;
	if (c >= a.channels) return;
	double sum = 0;
	for (int q = 0; q < a.chunks; q++) sum += GLOBAL(const double, a.part)[((i64)q * 2 + blockIdx.y) * a.channels + c];
	float *to = GLOBAL(float, out) + c;
	*to = a.add_params ? *to + (float)sum : (float)sum;
}

// rotary_table writes cosine and sine of each position and pair.
KERNEL(rotary_table, struct rotary_args) {
	int half = a.dim / 2;
	i64 i = (i64)blockIdx.x * ROW_THREADS + threadIdx.x;
	if (i >= (i64)a.length * half) return;
	double angle = (double)(i / half) * pow(a.ratio, (double)(i % half));
	GLOBAL(float, a.table)[2 * i] = (float)cos(angle);
	GLOBAL(float, a.table)[2 * i + 1] = (float)(a.sign * sin(angle));
}

// rotary: a block takes one position of one sample after the other. out may lie on in.
template <typename T> INLINE void rotary(const rotary_args &a) {
	int half = a.dim / 2;
	for (i64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
		const T *in = GLOBAL(const T, a.in) + r * a.channels;
		T *out = GLOBAL(T, a.out) + r * a.channels;
		const float *table = GLOBAL(const float, a.table) + (r % a.length) * a.dim;
		for (int c = threadIdx.x; c < a.channels; c += ROW_THREADS) {
			int i = c % a.dim;
			if (c >= a.heads * a.dim) {
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
