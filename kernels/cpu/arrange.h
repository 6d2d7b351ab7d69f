// Elements in another order, and parameters that lie on rows: what brings images to sequences and back, and what they are shifted and scaled by.

// rearranged calls for n elements of the loops, from element i on: body sees j, an element of the task, and at, one of the input.
#define REARRANGED(body) \
	const struct arrange_args *m = &job->args.arrange; \
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n), last = m->loops - 1, step = m->stride[last]; \
	int64_t index[MOST_LOOPS], base = m->from, rest = from; \
	for (int64_t k = last; k >= 0; k--) { \
		index[k] = rest % m->count[k]; \
		rest /= m->count[k]; \
		base += index[k] * m->stride[k]; \
	} \
	for (int64_t i = from; i < end;) { \
		int64_t run = least(m->count[last] - index[last], end - i); \
		for (int64_t r = 0; r < run; r++) { \
			int64_t j = i + r, at = base + r * step; \
			body \
		} \
		i += run; \
		base += run * step; \
		index[last] += run; \
		for (int64_t k = last; k > 0 && index[k] == m->count[k]; k--) { \
			base += m->stride[k - 1] - index[k] * m->stride[k]; \
			index[k] = 0; \
			index[k - 1]++; \
		} \
	}

// arrange_forward: dst[j] = src[at].
static void arrange_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const elem *restrict src = E(job->args.arrange.src);
	elem *restrict dst = E(job->args.arrange.dst);
	REARRANGED(dst[j] = src[at];)
}

// arrange_backward: dst[at] (+)= src[j]. No two tasks meet an element.
static void arrange_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const elem *restrict src = E(job->args.arrange.src);
	elem *restrict dst = E(job->args.arrange.dst);
	int64_t accumulate = job->args.arrange.accumulate;
	REARRANGED(dst[at] = accumulate ? to(of(dst[at]) + of(src[j])) : src[j];)
}

// weigh_rows: rows of width elements, y (+)= x + weight, x * weight, or weight where there is no x. y may lie on x.
static void weigh_rows(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct weigh_args *m = &job->args.weigh;
	int64_t blocks = ceildiv(m->width, m->columns_per_task), column = task % blocks * m->columns_per_task;
	int64_t from = task / blocks * m->rows_per_task, end = least(from + m->rows_per_task, m->rows);
	int64_t width = least(m->columns_per_task, m->width - column);
	const float *w = F(m->weight) + column;
	for (int64_t r = from; r < end; r++) {
		const elem *x = m->x ? E(m->x) + r * m->x_stride + column : 0;
		elem *y = E(m->y) + r * m->y_stride + column;
		for (int64_t i = 0; i < width; i++) {
			float v = !x ? w[i] : m->multiply ? of(x[i]) * w[i] : of(x[i]) + w[i];
			y[i] = to(m->accumulate ? of(y[i]) + v : v);
		}
	}
}

// weight_of_rows: out[c] (+)= the sum over rows of dy, or of dy*x, in float64. A task is 64 columns.
static void weight_of_rows(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct weigh_args *m = &job->args.weigh;
	int64_t c0 = task * 64, width = least(m->width - c0, 64);
	double sum[64] = {0};
	for (int64_t r = 0; r < m->rows; r++) {
		const elem *dy = E(m->y) + r * m->y_stride + c0, *x = m->x ? E(m->x) + r * m->x_stride + c0 : 0;
		for (int64_t c = 0; c < width; c++) sum[c] += x ? of(dy[c]) * of(x[c]) : of(dy[c]);
	}
	float *out = F(m->weight) + c0;
	for (int64_t c = 0; c < width; c++) out[c] = m->accumulate ? out[c] + (float)sum[c] : (float)sum[c];
}

// gate_forward: y = x * gate. A task is rows of a sample.
static void gate_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct gate_args *m = &job->args.gate;
	int64_t blocks = ceildiv(m->rows, m->rows_per_task), n = task / blocks, from = task % blocks * m->rows_per_task;
	int64_t end = least(from + m->rows_per_task, m->rows), channels = m->channels;
	const elem *gate = E(m->gate) + n * channels;
	for (int64_t r = n * m->rows + from; r < n * m->rows + end; r++) {
		const elem *x = E(m->x) + r * channels;
		elem *y = E(m->y) + r * channels;
		for (int64_t c = 0; c < channels; c++) y[c] = to(of(x[c]) * of(gate[c]));
	}
}

// gate_backward: dx (+)= dy * gate, dgate (+)= the sum over rows of dy * x, in float64. A task is 64 channels of a sample. dx may lie on dy or x.
static void gate_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct gate_args *m = &job->args.gate;
	int64_t blocks = ceildiv(m->channels, 64), n = task / blocks, c0 = task % blocks * 64, width = least(m->channels - c0, 64);
	double sum[64] = {0};
	const elem *gate = E(m->gate) + n * m->channels + c0;
	for (int64_t r = n * m->rows; r < (n + 1) * m->rows; r++) {
		const elem *dy = E(m->dy) + r * m->channels + c0, *x = E(m->x) + r * m->channels + c0;
		elem *dx = m->dx ? E(m->dx) + r * m->channels + c0 : 0;
		for (int64_t c = 0; c < width; c++) {
			float g = of(dy[c]) * of(gate[c]);
			sum[c] += of(dy[c]) * of(x[c]);
			if (dx) dx[c] = to(m->add_x ? of(dx[c]) + g : g);
		}
	}
	elem *out = m->dgate ? E(m->dgate) + n * m->channels + c0 : 0;
	for (int64_t c = 0; out && c < width; c++) out[c] = to(m->add_gate ? of(out[c]) + (float)sum[c] : (float)sum[c]);
}
