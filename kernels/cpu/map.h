// Elementwise kernels and copies. An output may lie exactly on an input.

// clipped is min(max(x, 0), most), and without most the former alone; NaN stays NaN.
INLINE float clipped(float x, float most) {
	float y = positive(x);
	return most > 0 && y > most ? most : y;
}

// unclipped is the gradient behind clipped with result y.
INLINE float unclipped(float dy, float y, float most) { return most > 0 && y >= most ? 0 : passed(dy, y, 1); }

static void relu_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *x = E(m->a);
	elem *y = E(m->out);
	float most = m->most;
	INDEPENDENT
	for (int64_t i = from; i < end; i++) y[i] = to(clipped(of(x[i]), most));
}

// relu_backward: a = dy, b = y.
static void relu_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *dy = E(m->a), *y = E(m->b);
	elem *dx = E(m->out);
	float most = m->most;
	if (m->accumulate) {
		INDEPENDENT
		for (int64_t i = from; i < end; i++) dx[i] = to(of(dx[i]) + unclipped(of(dy[i]), of(y[i]), most));
		return;
	}
	INDEPENDENT
	for (int64_t i = from; i < end; i++) dx[i] = to(unclipped(of(dy[i]), of(y[i]), most));
}

static void add_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *a = E(m->a), *b = E(m->b);
	elem *y = E(m->out);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) y[i] = to(of(a[i]) + of(b[i]));
}

// looked_up looks up some pixels; a constant number of channels, where it is one, unrolls the inner loop.
static inline void looked_up(const struct lookup_args *l, int64_t from, int64_t to, int64_t channels) {
	const uint8_t *restrict x = (const uint8_t *)(uintptr_t)l->x + from * channels;
	const float *restrict table = F(l->table);
	float *restrict y = F(l->y) + from * channels;
	for (int64_t i = from; i < to; i++, x += channels, y += channels)
		for (int64_t c = 0; c < channels; c++) y[c] = table[256 * c + x[c]];
}

static void lookup(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct lookup_args *l = &job->args.lookup;
	int64_t from = task * l->chunk, to = least(from + l->chunk, l->pixels);
	if (l->channels == 3)
		looked_up(l, from, to, 3);
	else
		looked_up(l, from, to, l->channels);
}

static void copy(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *restrict a = E(m->a);
	elem *restrict out = E(m->out);
	if (!m->accumulate) {
		memcpy(out + from, a + from, (size_t)(end - from) * sizeof(elem));
		return;
	}
	for (int64_t i = from; i < end; i++) out[i] = to(of(out[i]) + of(a[i]));
}

// affine: a = x, or dy, without plus; out = y, or dx.
static void affine(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *x = E(m->a);
	elem *out = E(m->out);
	float factor = m->factor, plus = m->plus;
	INDEPENDENT
	for (int64_t i = from; i < end; i++) {
		float v = factor * of(x[i]) + plus;
		out[i] = to(m->accumulate ? of(out[i]) + v : v);
	}
}

// copy_columns copies (or adds) a block of columns from one matrix to another, or clears it. A task is some columns of
// some rows: all columns, or one row.
static void copy_columns(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct copy_args *m = &job->args.copy;
	int64_t blocks = ceildiv(m->width, m->columns_per_task), column = task % blocks * m->columns_per_task;
	int64_t from = task / blocks * m->rows_per_task, end = least(from + m->rows_per_task, m->rows);
	int64_t width = least(m->columns_per_task, m->width - column);
	for (int64_t r = from; r < end; r++) {
		const elem *restrict src = E(m->src) + r * m->src_stride + column;
		elem *restrict dst = E(m->dst) + r * m->dst_stride + column;
		if (!m->src)
			memset(dst, 0, (size_t)width * sizeof(elem));
		else if (m->accumulate)
			for (int64_t i = 0; i < width; i++) dst[i] = to(of(dst[i]) + of(src[i]));
		else
			memcpy(dst, src, (size_t)width * sizeof(elem));
	}
}

#if HALF
// narrow rounds floats a to elements, widen is the other way; either adds to what is there when asked to.
static void narrow(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const float *a = F(m->a);
	elem *out = E(m->out);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) out[i] = to(m->accumulate ? of(out[i]) + a[i] : a[i]);
}

static void widen(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *a = E(m->a);
	float *out = F(m->out);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) out[i] = m->accumulate ? out[i] + of(a[i]) : of(a[i]);
}
#endif
