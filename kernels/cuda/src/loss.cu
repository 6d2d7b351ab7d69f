// Losses: softmax with cross entropy, the mean over rows of -log softmax(x)[label], and means over elements.
#include "plimsoll.cuh"

enum { LOSS_THREADS = 256, IGNORED = -100 }; // IGNORED: kernels.Ignored

#define LOSS_INSTANCES(name) \
	KERNEL_BOUNDS(name##_f32, struct loss_args, LOSS_THREADS, 4) { name<float>(a); } \
	KERNEL_BOUNDS(name##_bf16, struct loss_args, LOSS_THREADS, 4) { name<bf16>(a); }

// best is the largest value so far; a NaN counts as larger than anything, later NaN as larger than earlier ones.
struct best {
	float v;
	int at;
};

INLINE bool is_nan(float v) { return v != v; }

// better merges two candidates so that the result is that of a walk in ascending order.
INLINE best better(best p, best q) {
	bool larger = is_nan(q.v) ? !is_nan(p.v) || q.at > p.at : !is_nan(p.v) && (q.v > p.v || (q.v == p.v && q.at < p.at));
	bool second = q.at >= 0 && (p.at < 0 || larger);
	return best{second ? q.v : p.v, second ? q.at : p.at};
}

// Rows begin at any element, so a row is a head ahead of its first vector of 16 bytes, which is aligned, vectors, and a tail.
struct stretch {
	int head, vectors, tail; // elements, their number, index
};

template <typename T> INLINE stretch stretch_of(u64 address, int classes) {
	stretch s;
	s.head = (int)((16 - (address & 15)) & 15) / (int)sizeof(T);
	s.head = s.head < classes ? s.head : classes;
	s.vectors = (classes - s.head) / wide<T>::elements;
	s.tail = s.head + s.vectors * wide<T>::elements;
	return s;
}

enum { LOSS_VECTORS = 4, LOSS_WARPS = LOSS_THREADS / 32 }; // vectors that a thread has in flight

// exponentials summarizes the values of a row that a thread has seen: the largest one, and the sum of exp(v - top), in which a NaN is not
// lost.
struct exponentials {
	best top;
	double sum;
};

INLINE float lowest() { return __uint_as_float(0xff800000u); }

// rescaled is a sum whose values were compared with one top, for a larger top. With nothing above -infinity, it is 0 or NaN.
INLINE double rescaled(double sum, float from, float to) { return from == lowest() ? sum : sum * expf(from - to); }

// raise makes the largest of N vectors the top if it is larger; NaNs are passed over. Vector i begins with class c + i*step.
template <int N, int V> INLINE void raise(exponentials &p, const values<V> (&x)[N], int c, int step) {
	float most = x[0].v[0];
#pragma unroll
	for (int i = 0; i < N; i++)
#pragma unroll
		for (int k = 0; k < V; k++) most = fmaxf(most, x[i].v[k]);
	if (!(most > p.top.v)) return;
	p.sum = rescaled(p.sum, p.top.v, most);
	p.top.v = most;
#pragma unroll
	for (int i = N - 1; i >= 0; i--)
#pragma unroll
		for (int k = V - 1; k >= 0; k--)
			if (x[i].v[k] == most) p.top.at = c + i * step + k;
}

// exponential_of is far more exact than logits. Of 8 values of bfloat16 it is the hardware's, within 2^-16 for |x| below 88.
template <int V> INLINE float exponential_of(float x) { return V == 8 ? __expf(x) : expf(x); }

// add_exponentials adds those of a vector: of bfloat16, their sum in float32.
template <int V> INLINE void add_exponentials(exponentials &p, const values<V> &x) {
	float reference = p.top.v == lowest() ? 0 : p.top.v;
	float e[V];
#pragma unroll
	for (int k = 0; k < V; k++) e[k] = exponential_of<V>(x.v[k] - reference);
	if (V == 8) {
#pragma unroll
		for (int half = V / 2; half > 0; half /= 2)
#pragma unroll
			for (int k = 0; k < half; k++) e[k] += e[k + half];
		p.sum += e[0];
		return;
	}
#pragma unroll
	for (int k = 0; k < V; k++) p.sum += e[k];
}

// The addresses of a row's vectors are formed one by one: see GLOBAL.
#define ELEMENT(T, base, i) GLOBAL(T, (base) + (u64)(i) * sizeof(T))

template <typename T> INLINE void take_one(exponentials &p, u64 logits, int c) {
	values<1> x[1];
	load(x[0], ELEMENT(const T, logits, c));
	raise(p, x, c, 0);
	add_exponentials(p, x[0]);
}

// exponentials_of returns the exponentials of the thread's share of a row.
template <typename T> INLINE exponentials exponentials_of(const loss_args &a, i64 base) {
	const int V = wide<T>::elements;
	u64 logits = a.logits + base * sizeof(T);
	stretch s = stretch_of<T>(logits, a.classes);
	exponentials p = {{lowest(), -1}, 0};
	int t = threadIdx.x, step = blockDim.x;
	if (t < s.head) take_one<T>(p, logits, t);
	for (int i = t; i < s.vectors; i += LOSS_VECTORS * step) {
		values<V> x[LOSS_VECTORS];
#pragma unroll
		for (int j = 0; j < LOSS_VECTORS; j++) {
			int at = i + j * step;
			if (at < s.vectors) load(x[j], ELEMENT(const T, logits, s.head + at * V));
#pragma unroll
			for (int k = 0; k < V; k++) x[j].v[k] = at < s.vectors ? x[j].v[k] : lowest();
		}
		raise(p, x, s.head + i * V, step * V);
#pragma unroll
		for (int j = 0; j < LOSS_VECTORS; j++)
			if (i + j * step < s.vectors) add_exponentials(p, x[j]);
	}
	if (t < a.classes - s.tail) take_one<T>(p, logits, s.tail + t);
	return p;
}

// merge_warp merges what the lanes of a warp have; every lane gets the result.
INLINE exponentials merge_warp(exponentials p) {
	best top = p.top;
#pragma unroll
	for (int by = 16; by > 0; by /= 2)
		top = better(top, best{__shfl_xor_sync(0xffffffffu, top.v, by), __shfl_xor_sync(0xffffffffu, top.at, by)});
	double sum = rescaled(p.sum, p.top.v, top.v);
#pragma unroll
	for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
	return exponentials{top, sum};
}

// merge_block does so for a block of whole warps. Rows take turns with two places in shared memory, so that one barrier is enough.
INLINE exponentials merge_block(exponentials p, int turn) {
	__shared__ best tops[2 * LOSS_WARPS];
	__shared__ double sums[2 * LOSS_WARPS];
	int lane = threadIdx.x % 32, at = turn * LOSS_WARPS;
	p = merge_warp(p);
	if (lane == 0) tops[at + threadIdx.x / 32] = p.top, sums[at + threadIdx.x / 32] = p.sum;
	__syncthreads();
	p = exponentials{{lowest(), -1}, 0};
	if (lane < (int)blockDim.x / 32) p = exponentials{tops[at + lane], sums[at + lane]};
	return merge_warp(p);
}

// exact_exponentials walks over a row twice, as rows need that have a NaN, +infinity or nothing but -infinity. Rows need no barrier
// between them: tops are last read ahead of the barriers of sums, and sums are written behind those of the next row's tops.
template <typename T> INLINE exponentials exact_exponentials(const loss_args &a, i64 base) {
	__shared__ best tops[LOSS_THREADS];
	__shared__ double sums[LOSS_THREADS];
	const T *logits = GLOBAL(const T, a.logits);
	int t = threadIdx.x;
	best top = {0, -1};
	for (int c = t; c < a.classes; c += blockDim.x) top = better(top, best{to_float(logits[base + c]), c});
	tops[t] = top;
	__syncthreads();
	for (int half = blockDim.x / 2; half > 0; half /= 2) {
		if (t < half) tops[t] = better(tops[t], tops[t + half]);
		__syncthreads();
	}
	top = tops[0];
	double sum = 0;
	for (int c = t; c < a.classes; c += blockDim.x) sum += expf(to_float(logits[base + c]) - top.v);
	sums[t] = sum;
	__syncthreads();
	for (int half = blockDim.x / 2; half > 0; half /= 2) {
		if (t < half) sums[t] += sums[t + half];
		__syncthreads();
	}
	return exponentials{top, sums[0]};
}

// loss_forward: a block of a power of two of threads, 32 to LOSS_THREADS, takes one row after the other and reads it once. It writes the
// row's loss, whether its prediction is right, 0 and -1 of a row that does not count, and what is saved when that is wanted. A label
// out of range makes the loss NaN.
template <typename T> INLINE void loss_forward(const loss_args &a) {
	int turn = 0;
	for (int row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
		i64 base = (i64)row * a.classes;
		exponentials p = merge_block(exponentials_of<T>(a, base), turn);
		if (p.top.at < 0 || p.sum != p.sum) p = exact_exponentials<T>(a, base);
		if (threadIdx.x > 0) continue;
		int label = GLOBAL(const int, a.labels)[row];
		bool valid = label >= 0 && label < a.classes;
		GLOBAL(int, a.row_hit)[row] = label == IGNORED ? -1 : p.top.at == label;
		if (a.saved) {
			float *saved = GLOBAL(float, a.saved) + (i64)row * 3;
			saved[0] = p.top.v, saved[1] = (float)p.sum, saved[2] = (float)(p.sum - (float)p.sum);
		}
		double loss = valid ? log(p.sum) + p.top.v - to_float(GLOBAL(const T, a.logits)[base + label]) : (double)__uint_as_float(0x7fc00000u);
		GLOBAL(double, a.row_loss)[row] = label == IGNORED ? 0 : loss;
	}
}
LOSS_INSTANCES(loss_forward)

// loss_total: the mean of the losses of rows that count, the number of hits and that of these rows; one block, in an order that rows
// alone decide.
KERNEL(loss_total, struct loss_args) {
	__shared__ double sums[LOSS_THREADS];
	__shared__ int hits[LOSS_THREADS], counts[LOSS_THREADS];
	int t = threadIdx.x, hit = 0, counted = 0;
	double sum = 0;
	for (int row = t; row < a.rows; row += LOSS_THREADS) {
		sum += GLOBAL(const double, a.row_loss)[row];
		int right = GLOBAL(const int, a.row_hit)[row];
		hit += right > 0;
		counted += right >= 0;
	}
	sums[t] = sum;
	hits[t] = hit;
	counts[t] = counted;
	__syncthreads();
	for (int half = LOSS_THREADS / 2; half > 0; half /= 2) {
		if (t < half) sums[t] += sums[t + half], hits[t] += hits[t + half], counts[t] += counts[t + half];
		__syncthreads();
	}
	if (t > 0) return;
	GLOBAL(float, a.result)[0] = counts[0] ? (float)(sums[0] / (double)counts[0]) : 0;
	GLOBAL(float, a.result)[1] = (float)hits[0];
	GLOBAL(float, a.result)[2] = (float)counts[0];
}

// slope holds the numbers that the gradient of a row's logits depends on.
struct slope {
	float top, inverse, off, share;
	int label;
};

// gradient turns logits into their gradient: c is the first one's class.
template <int V> INLINE void gradient(values<V> &x, const slope &s, int c) {
#pragma unroll
	for (int k = 0; k < V; k++) x.v[k] = exponential_of<V>(x.v[k] - s.top) * s.inverse - s.off;
	if (s.label >= c && s.label - c < V) {
#pragma unroll
		for (int k = 0; k < V; k++) x.v[k] -= c + k == s.label ? 1 : 0;
	}
#pragma unroll
	for (int k = 0; k < V; k++) x.v[k] = s.label == IGNORED ? 0 : x.v[k] * s.share;
}

template <typename T> INLINE void gradient_of_one(const loss_args &a, const slope &s, i64 base, int c) {
	values<1> x;
	load(x, ELEMENT(const T, a.logits, base + c));
	gradient(x, s, c);
	deposit(ELEMENT(T, a.dx, base + c), x, 1, a.add);
}

// loss_backward: dx (+)= (softmax - onehot(label)) / rows that count. The gradient is 0 in a row that does not count, and NaN in a row with
// a label out of range. dx may lie on the logits.
template <typename T> INLINE void loss_backward(const loss_args &a) {
	const int V = wide<T>::elements;
	int t = threadIdx.x, step = blockDim.x;
	for (int row = blockIdx.x; row < a.rows; row += gridDim.x) {
		const float *saved = GLOBAL(const float, a.saved) + (i64)row * 3;
		slope g = {saved[0], (float)(1 / ((double)saved[1] + saved[2])), 0, 1 / GLOBAL(const float, a.result)[2], GLOBAL(const int, a.labels)[row]};
		if (g.label < 0 || g.label >= a.classes) g.off = __uint_as_float(0x7fc00000u);
		i64 base = (i64)row * a.classes;
		stretch s = stretch_of<T>(a.logits + base * sizeof(T), a.classes);
		if (t < s.head) gradient_of_one<T>(a, g, base, t);
		for (int i = t; i < s.vectors; i += LOSS_VECTORS * step) {
			values<V> x[LOSS_VECTORS];
#pragma unroll
			for (int j = 0; j < LOSS_VECTORS; j++)
				if (i + j * step < s.vectors) load(x[j], ELEMENT(const T, a.logits, base + s.head + (i + j * step) * V));
#pragma unroll
			for (int j = 0; j < LOSS_VECTORS; j++) {
				int c = s.head + (i + j * step) * V;
				if (i + j * step >= s.vectors) continue;
				gradient(x[j], g, c);
				deposit(ELEMENT(T, a.dx, base + c), x[j], V, a.add);
			}
		}
		if (t < a.classes - s.tail) gradient_of_one<T>(a, g, base, s.tail + t);
	}
}
LOSS_INSTANCES(loss_backward)

enum { MSE = 1, L1, BCE }; // kernels.Criterion

// criterion is the loss of an output and its target. That of BCE takes no exponential of a positive number.
INLINE double criterion(int of, float x, float t) {
	float d = x - t;
	if (of == MSE) return (double)d * d;
	if (of == L1) return fabsf(d);
	return (x > 0 ? x : 0) - (double)x * t + (double)log1pf(expf(-fabsf(x)));
}

// criterion_slope is the derivative of criterion by x. That of |x - t| is 0 at 0, and NaN where that is none.
INLINE float criterion_slope(int of, float x, float t) {
	float d = x - t;
	if (of == MSE) return 2 * d;
	if (of == L1) return d > 0 ? 1 : d < 0 ? -1 : d;
	float e = expf(-fabsf(x));
	return (x < 0 ? e / (1 + e) : 1 / (1 + e)) - t;
}

// sum_block adds up what the threads of a block have; thread 0 gets the result.
INLINE void sum_block(double &sum, int &right) {
	__shared__ double sums[LOSS_THREADS];
	__shared__ int rights[LOSS_THREADS];
	int t = threadIdx.x;
	sums[t] = sum;
	rights[t] = right;
	__syncthreads();
	for (int half = LOSS_THREADS / 2; half > 0; half /= 2) {
		if (t < half) sums[t] += sums[t + half], rights[t] += rights[t + half];
		__syncthreads();
	}
	sum = sums[0];
	right = rights[0];
}

// element_loss_forward: each block writes the sum of its elements' losses and how many are right. Blocks take every element once, in an
// order that n alone decides.
template <typename T> INLINE void element_loss_forward(const element_loss_args &a) {
	double sum = 0;
	int right = 0;
	for (i64 i = (i64)blockIdx.x * LOSS_THREADS + threadIdx.x; i < a.n; i += (i64)a.blocks * LOSS_THREADS) {
		float x = to_float(GLOBAL(const T, a.x)[i]), t = GLOBAL(const float, a.targets)[i];
		sum += criterion(a.of, x, t);
		right += a.of == BCE && (x > 0) == (t > 0.5f);
	}
	sum_block(sum, right);
	if (threadIdx.x > 0) return;
	GLOBAL(double, a.losses)[blockIdx.x] = sum;
	GLOBAL(int, a.right)[blockIdx.x] = right;
}
INSTANCES(element_loss_forward, element_loss_args)

// element_loss_total: the mean of the losses, the number of right elements and that of all; one block.
KERNEL(element_loss_total, struct element_loss_args) {
	double sum = 0;
	int right = 0;
	for (int i = threadIdx.x; i < a.blocks; i += LOSS_THREADS) {
		sum += GLOBAL(const double, a.losses)[i];
		right += GLOBAL(const int, a.right)[i];
	}
	sum_block(sum, right);
	if (threadIdx.x > 0) return;
	GLOBAL(float, a.result)[0] = (float)(sum / (double)a.n);
	GLOBAL(float, a.result)[1] = (float)right;
	GLOBAL(float, a.result)[2] = (float)a.n;
}

// element_loss_backward: dx (+)= the criterion's slope / the number of elements. dx may lie on x.
template <typename T> INLINE void element_loss_backward(const element_loss_args &a) {
	const int V = wide<T>::elements;
	float n = GLOBAL(const float, a.result)[2];
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.x) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++)
			if (k < left) x.v[k] = criterion_slope(a.of, x.v[k], GLOBAL(const float, a.targets)[i + k]) / n;
		deposit(GLOBAL(T, a.dx) + i, x, left, a.add);
	});
}
INSTANCES(element_loss_backward, element_loss_args)
