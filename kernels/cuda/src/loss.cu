// Softmax with cross entropy: the mean over rows of -log softmax(x)[label].
#include "plimsoll.cuh"

enum { LOSS_THREADS = 256, IGNORED = -100 }; // IGNORED: kernels.Ignored

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

// loss_forward: a block of a power of two of threads, at most LOSS_THREADS, takes one row after the other. It writes the row's loss,
// whether its prediction is right, 0 and -1 of a row that does not count, and what is saved when that is wanted. A label out of range
// makes the loss NaN. As many threads as classes, or more, give the same bits. Rows need no barrier between them: tops are last read
// ahead of the barriers of sums, and sums are written behind those of the next row's tops.
template <typename T> INLINE void loss_forward(const loss_args &a) {
	__shared__ best tops[LOSS_THREADS];
	__shared__ double sums[LOSS_THREADS];
	const T *logits = GLOBAL(const T, a.logits);
	int t = threadIdx.x;
	for (int row = blockIdx.x; row < a.rows; row += gridDim.x) {
		i64 base = (i64)row * a.classes;
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
		if (t == 0) {
			int label = GLOBAL(const int, a.labels)[row];
			bool valid = label >= 0 && label < a.classes;
			GLOBAL(int, a.row_hit)[row] = label == IGNORED ? -1 : top.at == label;
			if (a.saved) {
				float *saved = GLOBAL(float, a.saved) + (i64)row * 3;
				saved[0] = top.v, saved[1] = (float)sums[0], saved[2] = (float)(sums[0] - (float)sums[0]);
			}
			double loss = valid ? log(sums[0]) + top.v - to_float(logits[base + label]) : (double)__uint_as_float(0x7fc00000u);
			GLOBAL(double, a.row_loss)[row] = label == IGNORED ? 0 : loss;
		}
	}
}
INSTANCES(loss_forward, loss_args)

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

// loss_backward: dx (+)= (softmax - onehot(label)) / rows that count; 0 in a row that does not, NaN in one whose label is out of range. dx
// may lie on the logits.
template <typename T> INLINE void loss_backward(const loss_args &a) {
	float share = 1 / GLOBAL(const float, a.result)[2];
	for (int row = blockIdx.x; row < a.rows; row += gridDim.x) {
		int label = GLOBAL(const int, a.labels)[row];
		const float *saved = GLOBAL(const float, a.saved) + (i64)row * 3;
		float off = label < 0 || label >= a.classes ? __uint_as_float(0x7fc00000u) : 0, inverse = (float)(1 / ((double)saved[1] + saved[2]));
		for (int c = threadIdx.x; c < a.classes; c += blockDim.x) {
			i64 at = (i64)row * a.classes + c;
			float p = expf(to_float(GLOBAL(const T, a.logits)[at]) - saved[0]) * inverse;
			values<1> g = {{label == IGNORED ? 0 : (p - (c == label ? 1 : off)) * share}};
			deposit(GLOBAL(T, a.dx) + at, g, 1, a.add);
		}
	}
}
INSTANCES(loss_backward, loss_args)
