// Batch normalization (Ioffe, Szegedy 2015), fused with a residual and ReLU; group normalization; and sums over rows.
//
// A tensor is rows x channels. Sums: a block takes its channels of one chunk of rows, and every thread sums its rows. Threads are merged in
// order (Chan, Golub, LeVeque 1979). A second kernel merges the chunks in order, in float64.
// All of it depends on the shape alone. Forward in training reads x twice and writes y once; backward reads x and dy (and
// y under ReLU) twice.
#include "plimsoll.cuh"

// part is a block's share: channels from c on, rows from r0 to r1.
struct part {
	int c;
	i64 r0, r1;
	bool inside;
};

template <int V> INLINE part part_of(int channels, i64 rows, i64 chunk_rows) {
	part p;
	p.c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
	p.r0 = (i64)blockIdx.y * chunk_rows;
	p.r1 = p.r0 + chunk_rows < rows ? p.r0 + chunk_rows : rows;
	p.inside = p.c < channels;
	return p;
}

// rows_of_thread: how many of the part's rows thread row y takes.
INLINE i64 rows_of_thread(const part &p, int y) {
	i64 rows = p.r1 - p.r0;
	return rows > y ? (rows - y + blockDim.y - 1) / blockDim.y : 0;
}

// fetched are the vectors of a row that a kernel reads, two at most beside x.
template <int V> struct fetched {
	values<V> x, more, y;
};

// each_row calls fetch and then use for the rows of a thread: for two rows together, so that the loads of both are in flight. A store may lie
// on what is loaded next, so the compiler would not move loads ahead of it; fetch has no branches for that reason.
template <int V, typename F, typename U> INLINE void each_row(const part &p, i64 channels, F fetch, U use) {
	i64 step = (i64)blockDim.y * channels, at = (p.r0 + threadIdx.y) * channels + p.c;
	int left = p.inside ? (int)rows_of_thread(p, threadIdx.y) : 0;
	for (; left >= 2; left -= 2, at += 2 * step) {
		fetched<V> first, second;
		fetch(first, at);
		fetch(second, at + step);
		use(first, at);
		use(second, at + step);
	}
	if (left == 0) return;
	fetched<V> last;
	fetch(last, at);
	use(last, at);
}

// known is a flag that a kernel has two loops for.
template <bool VALUE> struct known {
	enum { value = VALUE };
};
template <typename F> INLINE void branch(bool flag, F loop) {
	if (flag)
		loop(known<true>());
	else
		loop(known<false>());
}

// moments of n values: their mean and the sum of squared deviations from it.
struct moments {
	double n, mean, squares;
};

INLINE void merge(moments &m, double n, double mean, double squares) {
	if (n == 0) return;
	double delta = mean - m.mean, total = m.n + n;
	m.mean += delta * (n / total);
	m.squares += squares + delta * delta * m.n * (n / total);
	m.n = total;
}

enum { NORM_THREADS = 256 };

// norm_moments: part[chunk] = mean and sum of squared deviations of the chunk's rows. A thread sums what its rows are above its first one.
template <typename T, int V> INLINE void norm_moments(const norm_args &a) {
	__shared__ float means[NORM_THREADS * V], squares[NORM_THREADS * V];
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	values<V> first = {};
	float sum[V] = {0}, square[V] = {0};
	i64 mine = p.inside ? rows_of_thread(p, threadIdx.y) : 0, step = (i64)blockDim.y * a.channels;
	i64 from = (p.r0 + threadIdx.y) * a.channels + p.c;
	if (mine > 0) load(first, GLOBAL(const T, a.x) + from);
#pragma unroll 4
	for (i64 i = 1; i < mine; i++) {
		values<V> x;
		load(x, GLOBAL(const T, a.x) + from + i * step);
#pragma unroll
		for (int k = 0; k < V; k++) {
			float above = x.v[k] - first.v[k];
			sum[k] += above;
			square[k] += above * above;
		}
	}
	float inverse = mine > 0 ? 1 / (float)mine : 0;
	int width = blockDim.x * V;
#pragma unroll
	for (int k = 0; k < V; k++) {
		float rest = square[k] - sum[k] * (sum[k] * inverse);
		means[threadIdx.y * width + threadIdx.x * V + k] = first.v[k] + sum[k] * inverse;
		squares[threadIdx.y * width + threadIdx.x * V + k] = rest < 0 ? 0 : rest; // a NaN stays one
	}
	__syncthreads();
	int c = blockIdx.x * width;
	for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < width && c + i < a.channels; i += NORM_THREADS) {
		moments m = {0, 0, 0};
		for (int y = 0; y < (int)blockDim.y; y++) merge(m, (double)rows_of_thread(p, y), means[y * width + i], squares[y * width + i]);
		double *to = GLOBAL(double, a.part) + (i64)blockIdx.y * 2 * a.channels + c + i;
		to[0] = m.mean;
		to[a.channels] = m.squares;
	}
}
SUM_INSTANCES(norm_moments, norm_args)

enum { MERGE_LANES = 32, MERGE_ROWS = 32 };

// Kernels that merge chunks: a block has as many threads as a multiprocessor must have registers for.
#define MERGE_KERNEL(name, args) KERNEL_BOUNDS(name, args, MERGE_LANES * MERGE_ROWS, 1)

INLINE bool is_finite(double x) { return x - x == 0; }

INLINE void move_running(const norm_args &a, int c, const moments &m) {
	if (!a.update || !is_finite(m.mean) || !is_finite(m.squares)) return;
	float *mean = GLOBAL(float, a.running_mean) + c, *var = GLOBAL(float, a.running_var) + c;
	double rest = m.n > 1 ? m.n - 1 : 1;
	// rounded, so that statistics that wait as floats (norm_move) move them by the same bits
	*mean = (float)((1 - a.momentum) * *mean + a.momentum * (double)(float)m.mean);
	*var = (float)((1 - a.momentum) * *var + a.momentum * (double)(float)(m.squares / rest));
}

INLINE double chunk_size(i64 rows, i64 chunk_rows, int chunk) {
	i64 left = rows - (i64)chunk * chunk_rows;
	return (double)(left < chunk_rows ? left : chunk_rows);
}

// sum_of returns to all threads of a channel the sum of what value gives for each chunk: MERGE_ROWS threads share the chunks.
template <typename F> INLINE double sum_of(int chunks, F value) {
	__shared__ double sums[MERGE_ROWS][MERGE_LANES];
	double sum = 0;
#pragma unroll 4
	for (int q = threadIdx.y; q < chunks; q += MERGE_ROWS) sum += value(q);
	__syncthreads(); // earlier sums have been read
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	for (int y = 1; threadIdx.y == 0 && y < MERGE_ROWS; y++) sum += sums[y][threadIdx.x];
	if (threadIdx.y == 0) sums[0][threadIdx.x] = sum;
	__syncthreads();
	return sums[0][threadIdx.x];
}

// norm_statistics merges the chunks (in training), moves the running statistics, saves mean and 1/std, and writes the
// coefficients mean and weight/std. Blocks of MERGE_LANES channels.
MERGE_KERNEL(norm_statistics, struct norm_args) {
	int c = blockIdx.x * MERGE_LANES + threadIdx.x, chunks = a.train && c < a.channels ? a.chunks : 0;
	const double *parts = GLOBAL(const double, a.part) + c;
	i64 step = 2 * (i64)a.channels;
	moments m = {(double)a.rows, 0, 0};
	m.mean = sum_of(chunks, [&](int q) { return chunk_size(a.rows, a.chunk_rows, q) * parts[q * step]; }) / m.n;
	m.squares = sum_of(chunks, [&](int q) {
		double off = parts[q * step] - m.mean;
		return parts[q * step + a.channels] + chunk_size(a.rows, a.chunk_rows, q) * off * off;
	});
	if (threadIdx.y > 0 || c >= a.channels) return;
	float mean = (float)m.mean;
	double var = m.squares / (double)a.rows;
	if (!a.train) mean = GLOBAL(const float, a.running_mean)[c], var = GLOBAL(const float, a.running_var)[c];
	float invstd = (float)(1 / sqrt(var + a.epsilon));
	if (a.train) move_running(a, c, m);
	if (a.mean) GLOBAL(float, a.mean)[c] = mean;
	if (a.invstd) GLOBAL(float, a.invstd)[c] = invstd;
	GLOBAL(float, a.coef)[c] = mean;
	GLOBAL(float, a.coef)[a.channels + c] = invstd * GLOBAL(const float, a.weight)[c];
}

// norm_move merges the statistics of a minibatch's batches, in their order, and moves the running ones. It leaves -0 in
// the rows: a variance of -0 is none. One thread for each channel.
KERNEL(norm_move, struct move_args) {
	int c = blockIdx.x * blockDim.x + threadIdx.x;
	if (c >= a.channels) return;
	moments m = {0, 0, 0};
	bool whole = true;
	for (int k = 0; k < a.batches; k++) {
		float *mean = GLOBAL(float, a.moments) + 2 * (i64)k * a.stride + c, *var = mean + a.stride;
		merge(m, (double)a.rows, *mean, *var * (double)(a.rows - 1));
		whole = whole && __float_as_int(*var) >= 0;
		*mean = *var = -0.0f;
	}
	if (!whole) return;
	float *mean = GLOBAL(float, a.mean) + c, *var = GLOBAL(float, a.var) + c;
	*mean = (float)((1 - a.momentum) * *mean + a.momentum * m.mean);
	*var = (float)((1 - a.momentum) * *var + a.momentum * (m.squares / (m.n - 1)));
}

template <int V> INLINE values<V> coefficient(u64 base, i64 at) {
	values<V> x;
	load_floats(x, GLOBAL(const float, base) + at);
	return x;
}

// norm_apply: y = relu((x - mean)*scale + bias + residual). A block takes chunk_rows rows.
template <typename T, int V> INLINE void norm_apply(const norm_args &a) {
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	if (!p.inside) return;
	values<V> mean = coefficient<V>(a.coef, p.c), scale = coefficient<V>(a.coef, a.channels + p.c), bias = coefficient<V>(a.bias, p.c);
	branch(a.residual != 0, [&](auto residual) {
		each_row<V>(p, a.channels, [&](fetched<V> &row, i64 at) {
			load(row.x, GLOBAL(const T, a.x) + at);
			if (residual.value) load(row.more, GLOBAL(const T, a.residual) + at);
		}, [&](fetched<V> &row, i64 at) {
#pragma unroll
			for (int k = 0; k < V; k++) {
				float v = (row.x.v[k] - mean.v[k]) * scale.v[k] + bias.v[k];
				if (residual.value) v += row.more.v[k];
				row.x.v[k] = a.relu && v < 0 ? 0 : v;
			}
			store(GLOBAL(T, a.y) + at, row.x);
		});
	});
}
APPLY_INSTANCES(norm_apply, norm_args)

INLINE float norm_mean(const norm_args &a, int c) { return GLOBAL(const float, a.train ? a.mean : a.running_mean)[c]; }
INLINE float norm_invstd(const norm_args &a, int c) {
	if (a.train) return GLOBAL(const float, a.invstd)[c];
	return (float)(1 / sqrt((double)GLOBAL(const float, a.running_var)[c] + a.epsilon));
}

// mask leaves of a row's gradient what passes the ReLU.
template <int V> INLINE void mask(fetched<V> &row) {
#pragma unroll
	for (int k = 0; k < V; k++) row.more.v[k] = passed(row.more.v[k], row.y.v[k]);
}

// fetch_gradient loads x and dy of a row, and y where there is a ReLU.
template <typename T, int V, typename R> INLINE void fetch_gradient(fetched<V> &row, const norm_args &a, i64 at, R) {
	load(row.x, GLOBAL(const T, a.x) + at);
	load(row.more, GLOBAL(const T, a.dy) + at);
	if (R::value) load(row.y, GLOBAL(const T, a.y) + at);
}

// sum_threads adds what the threads of each channel hold, in order, and writes it as part[chunk][which].
template <int V> INLINE void sum_threads(const float *mine, float *shared, u64 to, int channels, int which, int kinds) {
	int width = blockDim.x * V, c = blockIdx.x * width;
#pragma unroll
	for (int k = 0; k < V; k++) shared[threadIdx.y * width + threadIdx.x * V + k] = mine[k];
	__syncthreads();
	for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < width && c + i < channels; i += NORM_THREADS) {
		double sum = 0;
		for (int y = 0; y < (int)blockDim.y; y++) sum += shared[y * width + i];
		GLOBAL(double, to)[((i64)blockIdx.y * kinds + which) * channels + c + i] = sum;
	}
	__syncthreads();
}

// norm_backward_sums: part[chunk] = sum of g and of g*xhat over the chunk's rows; xhat = (x - mean)/std.
template <typename T, int V> INLINE void norm_backward_sums(const norm_args &a) {
	__shared__ float shared[NORM_THREADS * V];
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	float sum[V] = {0}, product[V] = {0}, mean[V] = {0};
	for (int k = 0; k < V && p.inside; k++) mean[k] = norm_mean(a, p.c + k);
	branch(a.relu != 0, [&](auto relu) {
		each_row<V>(p, a.channels, [&](fetched<V> &row, i64 at) { fetch_gradient<T>(row, a, at, relu); }, [&](fetched<V> &row, i64) {
			if (relu.value) mask(row);
#pragma unroll
			for (int k = 0; k < V; k++) {
				sum[k] += row.more.v[k];
				product[k] += row.more.v[k] * (row.x.v[k] - mean[k]);
			}
		});
	});
	for (int k = 0; k < V && p.inside; k++) product[k] *= norm_invstd(a, p.c + k);
	sum_threads<V>(sum, shared, a.part, a.channels, 0, 2);
	sum_threads<V>(product, shared, a.part, a.channels, 1, 2);
}
SUM_INSTANCES(norm_backward_sums, norm_args)

// sum_chunks returns the sum over chunks of part[chunk][which][c].
INLINE double sum_chunks(u64 from, int c, int channels, int chunks, int which, int kinds) {
	return sum_of(c < channels ? chunks : 0, [&](int q) { return GLOBAL(const double, from)[((i64)q * kinds + which) * channels + c]; });
}

INLINE void deposit_one(u64 base, int c, double v, int add) {
	float *p = GLOBAL(float, base) + c;
	*p = add ? *p + (float)v : (float)v;
}

// norm_backward_params writes dweight and dbias, and three coefficients of the input's gradient, dx = scale*(g - off - (x - mean)*slope).
// They are the factors of g and x, and the number that is added.
MERGE_KERNEL(norm_backward_params, struct norm_args) {
	int c = blockIdx.x * MERGE_LANES + threadIdx.x;
	double sum = sum_chunks(a.part, c, a.channels, a.chunks, 0, 2);
	double product = sum_chunks(a.part, c, a.channels, a.chunks, 1, 2);
	if (threadIdx.y > 0 || c >= a.channels) return;
	float *coef = GLOBAL(float, a.coef) + c;
	double invstd = norm_invstd(a, c), scale = invstd * GLOBAL(const float, a.weight)[c];
	double off = a.train ? sum / (double)a.rows : 0, slope = a.train ? product / (double)a.rows * invstd : 0;
	coef[0] = (float)scale;
	coef[a.channels] = (float)(-scale * slope);
	coef[2 * (i64)a.channels] = (float)(scale * (norm_mean(a, c) * slope - off));
	deposit_one(a.dbias, c, sum, a.add_params);
	deposit_one(a.dweight, c, product, a.add_params);
}

// norm_backward_apply writes dx, and g itself to the residual's gradient. A block takes chunk_rows rows.
template <typename T, int V> INLINE void norm_backward_apply(const norm_args &a) {
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	if (!p.inside) return;
	i64 c = a.channels;
	values<V> scale = coefficient<V>(a.coef, p.c), slope = coefficient<V>(a.coef, c + p.c), rest = coefficient<V>(a.coef, 2 * c + p.c);
	branch(a.relu != 0, [&](auto relu) {
		each_row<V>(p, c, [&](fetched<V> &row, i64 at) { fetch_gradient<T>(row, a, at, relu); }, [&](fetched<V> &row, i64 at) {
			if (relu.value) mask(row);
			if (a.dresidual) deposit(GLOBAL(T, a.dresidual) + at, row.more, V, a.add_dresidual);
			if (!a.dx) return;
#pragma unroll
			for (int k = 0; k < V; k++) row.x.v[k] = scale.v[k] * row.more.v[k] + (slope.v[k] * row.x.v[k] + rest.v[k]);
			deposit(GLOBAL(T, a.dx) + at, row.x, V, a.add_dx);
		});
	});
}
APPLY_INSTANCES(norm_backward_apply, norm_args)

// Group normalization (Wu, He 2018): the sums are those of one sample's channels; a block merges those of one group.

INLINE float group_weight(const norm_args &a, int c) { return a.weight ? GLOBAL(const float, a.weight)[c] : 1.0f; }

// group_statistics merges the chunks and channels of a group in a fixed order, saves mean and 1/std for each channel, and writes the
// coefficients mean, scale and bias.
MERGE_KERNEL(group_statistics, struct norm_args) {
	__shared__ moments merged[MERGE_ROWS * MERGE_LANES];
	int width = a.channels / a.groups, first = blockIdx.x * width, me = threadIdx.y * MERGE_LANES + threadIdx.x;
	moments m = {0, 0, 0};
	for (i64 i = me; i < (i64)a.chunks * width; i += MERGE_ROWS * MERGE_LANES) {
		int q = (int)(i / width);
		const double *from = GLOBAL(const double, a.part) + (i64)q * 2 * a.channels + first + i % width;
		merge(m, chunk_size(a.rows, a.chunk_rows, q), from[0], from[a.channels]);
	}
	merged[me] = m;
	__syncthreads();
	for (int half = MERGE_ROWS * MERGE_LANES / 2; half > 0; half /= 2) {
		if (me < half) {
			moments other = merged[me + half];
			merge(m, other.n, other.mean, other.squares);
			merged[me] = m;
		}
		__syncthreads();
	}
	m = merged[0];
	float mean = (float)m.mean, invstd = (float)(1 / sqrt(m.squares / m.n + a.epsilon));
	for (int c = first + me; c < first + width; c += MERGE_ROWS * MERGE_LANES) {
		GLOBAL(float, a.coef)[c] = mean;
		GLOBAL(float, a.coef)[a.channels + c] = invstd * group_weight(a, c);
		GLOBAL(float, a.coef)[2 * (i64)a.channels + c] = a.bias ? GLOBAL(const float, a.bias)[c] : 0.0f;
		if (a.mean) GLOBAL(float, a.mean)[c] = mean;
		if (a.invstd) GLOBAL(float, a.invstd)[c] = invstd;
	}
}

// group_params writes dweight and dbias of a group's channels, and the coefficients of the input's gradient,
// dx = scale*g - off - (x - mean)*slope.
MERGE_KERNEL(group_params, struct norm_args) {
	__shared__ double sums[MERGE_ROWS * MERGE_LANES], products[MERGE_ROWS * MERGE_LANES];
	int width = a.channels / a.groups, first = blockIdx.x * width, me = threadIdx.y * MERGE_LANES + threadIdx.x;
	double all = 0, weighted = 0;
	for (int c = first + me; c < first + width; c += MERGE_ROWS * MERGE_LANES) {
		double sum = 0, product = 0;
		for (int q = 0; q < a.chunks; q++) {
			sum += GLOBAL(const double, a.part)[(i64)q * 2 * a.channels + c];
			product += GLOBAL(const double, a.part)[((i64)q * 2 + 1) * a.channels + c];
		}
		all += sum * group_weight(a, c), weighted += product * group_weight(a, c);
		if (a.dbias) deposit_one(a.dbias, c, sum, a.add_params);
		if (a.dweight) deposit_one(a.dweight, c, product, a.add_params);
	}
	sums[me] = all, products[me] = weighted;
	__syncthreads();
	for (int half = MERGE_ROWS * MERGE_LANES / 2; half > 0; half /= 2) {
		if (me < half) sums[me] += sums[me + half], products[me] += products[me + half];
		__syncthreads();
	}
	double invstd = GLOBAL(const float, a.invstd)[first], elements = (double)a.rows * width;
	for (int c = first + me; c < first + width; c += MERGE_ROWS * MERGE_LANES) {
		float *coef = GLOBAL(float, a.coef) + c;
		coef[0] = GLOBAL(const float, a.mean)[c];
		coef[a.channels] = (float)invstd * group_weight(a, c);
		coef[2 * (i64)a.channels] = (float)(sums[0] / elements * invstd);
		coef[3 * (i64)a.channels] = (float)(products[0] / elements * invstd * invstd);
	}
}

// group_apply writes dx. A block takes chunk_rows rows.
template <typename T, int V> INLINE void group_apply(const norm_args &a) {
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	if (!p.inside) return;
	i64 c = a.channels;
	values<V> mean = coefficient<V>(a.coef, p.c), scale = coefficient<V>(a.coef, c + p.c);
	values<V> off = coefficient<V>(a.coef, 2 * c + p.c), slope = coefficient<V>(a.coef, 3 * c + p.c);
	each_row<V>(p, c, [&](fetched<V> &row, i64 at) { fetch_gradient<T>(row, a, at, known<false>()); }, [&](fetched<V> &row, i64 at) {
#pragma unroll
		for (int k = 0; k < V; k++) row.x.v[k] = scale.v[k] * row.more.v[k] - off.v[k] - (row.x.v[k] - mean.v[k]) * slope.v[k];
		deposit(GLOBAL(T, a.dx) + at, row.x, V, a.add_dx);
	});
}
APPLY_INSTANCES(group_apply, norm_args)

// columns: part[chunk] = the sum of the chunk's rows.
template <typename T, int V> INLINE void columns(const columns_args &a) {
	__shared__ float shared[NORM_THREADS * V];
	part p = part_of<V>(a.channels, a.rows, a.chunk_rows);
	float sum[V] = {0};
#pragma unroll 4
	for (i64 r = p.r0 + threadIdx.y; r < p.r1; r += blockDim.y) {
		if (!p.inside) break;
		values<V> x;
		load(x, GLOBAL(const T, a.in) + r * a.channels + p.c);
#pragma unroll
		for (int k = 0; k < V; k++) sum[k] += x.v[k];
	}
	sum_threads<V>(sum, shared, a.part, a.channels, 0, 1);
}
SUM_INSTANCES(columns, columns_args)

// columns_total: out (+)= the sum of the chunks.
MERGE_KERNEL(columns_total, struct columns_args) {
	int c = blockIdx.x * MERGE_LANES + threadIdx.x;
	double sum = sum_chunks(a.part, c, a.channels, a.chunks, 0, 1);
	if (threadIdx.y == 0 && c < a.channels) deposit_one(a.out, c, sum, a.add);
}
