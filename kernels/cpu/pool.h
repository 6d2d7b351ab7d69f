// Pooling. Backward passes gather: each input pixel asks the windows that cover it, in order, so that no two
// tasks write to one place.

// range is a half-open interval.
struct range { int64_t from, to; };

// window_range returns the positions in [0, size) of window o.
INLINE struct range window_range(int64_t o, int64_t kernel, int64_t stride, int64_t pad, int64_t size) {
	return (struct range){most(o * stride - pad, 0), least(o * stride - pad + kernel, size)};
}

// covering returns the windows in [0, count) that contain position i.
INLINE struct range covering(int64_t i, int64_t kernel, int64_t stride, int64_t pad, int64_t count) {
	int64_t first = i + pad - kernel + 1;
	return (struct range){first <= 0 ? 0 : ceildiv(first, stride), least((i + pad) / stride + 1, count)};
}

INLINE void take_maximum(const elem *restrict x, int32_t at, elem *restrict y, int32_t *restrict index, int64_t channels) {
	for (int64_t c = 0; c < channels; c++) {
		int take = (of(x[c]) > of(y[c])) | (of(x[c]) != of(x[c]));
		y[c] = take ? x[c] : y[c];
		index[c] = take ? at : index[c];
	}
}

INLINE void take_maximum_only(const elem *restrict x, elem *restrict y, int64_t channels) {
	for (int64_t c = 0; c < channels; c++) y[c] = (of(x[c]) > of(y[c])) | (of(x[c]) != of(x[c])) ? x[c] : y[c];
}

// max_pixel: the first maximum in row-major order wins, a NaN always.
static void max_pixel(const struct pool_args *p, int64_t n, int64_t oh, int64_t ow, elem *y, int32_t *index) {
	struct range hs = window_range(oh, p->kh, p->sh, p->ph, p->h), ws = window_range(ow, p->kw, p->sw, p->pw, p->w);
	const elem *image = E(p->x) + n * p->h * p->w * p->channels;
	memcpy(y, image + (hs.from * p->w + ws.from) * p->channels, (size_t)p->channels * sizeof(elem));
	for (int64_t c = 0; index && c < p->channels; c++) index[c] = (int32_t)(hs.from * p->w + ws.from);
	for (int64_t h = hs.from; h < hs.to; h++)
		for (int64_t w = ws.from; w < ws.to; w++) {
			const elem *x = image + (h * p->w + w) * p->channels;
			if (index)
				take_maximum(x, (int32_t)(h * p->w + w), y, index, p->channels);
			else
				take_maximum_only(x, y, p->channels);
		}
}

// maxpool_forward: a task is rows_per_task rows of the output.
static void maxpool_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, to = least(from + p->rows_per_task, p->n * p->oh);
	for (int64_t r = from; r < to; r++)
		for (int64_t ow = 0; ow < p->ow; ow++) {
			int64_t at = (r * p->ow + ow) * p->channels;
			max_pixel(p, r / p->oh, r % p->oh, ow, E(p->y) + at, p->index ? I(p->index) + at : 0);
		}
}

// open_sums starts the sums of some channels: zeros, or what is there. close_sums rounds them once, when they are complete.
INLINE void open_sums(float *restrict sum, const elem *restrict from, int64_t channels, int64_t accumulate) {
	for (int64_t c = 0; c < channels; c++) sum[c] = accumulate ? of(from[c]) : 0;
}

INLINE void close_sums(const float *restrict sum, elem *restrict out, int64_t channels, float area) {
	for (int64_t c = 0; c < channels; c++) out[c] = to(sum[c] / area);
}

// maxpool_backward: a task is rows_per_task rows of the input.
static void maxpool_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * p->h);
	float sum[POOL_CHANNELS];
	for (int64_t i = from * p->w; i < past * p->w; i++) {
		int64_t r = i / p->w, w = i % p->w, n = r / p->h, h = r % p->h;
		int32_t me = (int32_t)(h * p->w + w);
		struct range hs = covering(h, p->kh, p->sh, p->ph, p->oh), ws = covering(w, p->kw, p->sw, p->pw, p->ow);
		for (int64_t c0 = 0; c0 < p->channels; c0 += POOL_CHANNELS) {
			int64_t width = least(p->channels - c0, POOL_CHANNELS);
			elem *dx = E(p->dx) + i * p->channels + c0;
			open_sums(sum, dx, width, p->accumulate);
			for (int64_t oh = hs.from; oh < hs.to; oh++)
				for (int64_t ow = ws.from; ow < ws.to; ow++) {
					int64_t at = ((n * p->oh + oh) * p->ow + ow) * p->channels + c0;
					const elem *restrict dy = E(p->dy) + at;
					const int32_t *restrict index = I(p->index) + at;
					for (int64_t c = 0; c < width; c++) sum[c] += index[c] == me ? of(dy[c]) : 0;
				}
			close_sums(sum, dx, width, 1);
		}
	}
}

// reaches returns how many positions the mean of window o along an axis is of: see kernels.AvgPool.
INLINE int64_t reaches(int64_t o, int64_t kernel, int64_t stride, int64_t pad, int64_t size, int64_t inside) {
	int64_t from = o * stride - pad, past = least(from + kernel, size + pad);
	return inside ? least(past, size) - most(from, 0) : past - from;
}

// area_of returns how many pixels the mean of a window is of.
INLINE float area_of(const struct pool_args *p, int64_t oh, int64_t ow) {
	if (!p->uneven) return (float)(p->kh * p->kw);
	return (float)(reaches(oh, p->kh, p->sh, p->ph, p->h, p->inside) * reaches(ow, p->kw, p->sw, p->pw, p->w, p->inside));
}

// avgpool_forward: a task is rows_per_task rows of the output.
static void avgpool_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * p->oh);
	float sum[POOL_CHANNELS];
	for (int64_t i = from * p->ow; i < past * p->ow; i++) {
		int64_t r = i / p->ow, ow = i % p->ow;
		struct range hs = window_range(r % p->oh, p->kh, p->sh, p->ph, p->h), ws = window_range(ow, p->kw, p->sw, p->pw, p->w);
		for (int64_t c0 = 0; c0 < p->channels; c0 += POOL_CHANNELS) {
			int64_t width = least(p->channels - c0, POOL_CHANNELS);
			elem *y = E(p->y) + i * p->channels + c0;
			open_sums(sum, y, width, 0);
			for (int64_t h = hs.from; h < hs.to; h++)
				for (int64_t w = ws.from; w < ws.to; w++) {
					const elem *restrict x = E(p->x) + ((r / p->oh * p->h + h) * p->w + w) * p->channels + c0;
					for (int64_t c = 0; c < width; c++) sum[c] += of(x[c]);
				}
			close_sums(sum, y, width, area_of(p, r % p->oh, ow));
		}
	}
}

// avgpool_backward: a task is rows_per_task rows of the input.
static void avgpool_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * p->h);
	float sum[POOL_CHANNELS];
	for (int64_t i = from * p->w; i < past * p->w; i++) {
		int64_t r = i / p->w, w = i % p->w;
		struct range hs = covering(r % p->h, p->kh, p->sh, p->ph, p->oh), ws = covering(w, p->kw, p->sw, p->pw, p->ow);
		for (int64_t c0 = 0; c0 < p->channels; c0 += POOL_CHANNELS) {
			int64_t width = least(p->channels - c0, POOL_CHANNELS);
			elem *dx = E(p->dx) + i * p->channels + c0;
			open_sums(sum, dx, width, p->accumulate);
			for (int64_t oh = hs.from; oh < hs.to; oh++)
				for (int64_t ow = ws.from; ow < ws.to; ow++) {
					const elem *restrict dy = E(p->dy) + ((r / p->h * p->oh + oh) * p->ow + ow) * p->channels + c0;
					float share = 1 / area_of(p, oh, ow);
					for (int64_t c = 0; c < width; c++) sum[c] += of(dy[c]) * share;
				}
			close_sums(sum, dx, width, 1);
		}
	}
}

// globalpool_forward: a task is POOL_CHANNELS channels of one image. Sums are of 32 pixels, then of those.
static void globalpool_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t blocks = ceildiv(p->channels, POOL_CHANNELS), n = task / blocks, c0 = task % blocks * POOL_CHANNELS;
	int64_t width = least(p->channels - c0, POOL_CHANNELS), area = p->h * p->w;
	float sum[POOL_CHANNELS], all[POOL_CHANNELS];
	elem *y = E(p->y) + n * p->channels + c0;
	open_sums(all, y, width, 0);
	for (int64_t q = 0; q < area; q += 32) {
		add_rows(E(p->x) + (n * area + q) * p->channels + c0, least(area - q, 32), p->channels, width, sum);
		for (int64_t c = 0; c < width; c++) all[c] += sum[c];
	}
	close_sums(all, y, width, (float)area);
}

// globalpool_backward: a task is rows_per_task pixels.
static void globalpool_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t area = p->h * p->w, from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * area);
	float share = 1 / (float)area;
	for (int64_t r = from; r < past; r++) {
		const elem *restrict dy = E(p->dy) + r / area * p->channels;
		elem *restrict dx = E(p->dx) + r * p->channels;
		if (p->accumulate)
			for (int64_t c = 0; c < p->channels; c++) dx[c] = to(of(dx[c]) + of(dy[c]) * share);
		else
			for (int64_t c = 0; c < p->channels; c++) dx[c] = to(of(dy[c]) * share);
	}
}

// cut returns where window o lies when an axis of size positions is cut into count windows. The other way around it
// returns the windows that contain a position: cut(i, count, size).
INLINE struct range cut(int64_t o, int64_t size, int64_t count) {
	return (struct range){o * size / count, ceildiv((o + 1) * size, count)};
}

INLINE float cut_area(const struct pool_args *p, int64_t oh, int64_t ow) {
	struct range hs = cut(oh, p->h, p->oh), ws = cut(ow, p->w, p->ow);
	return (float)((hs.to - hs.from) * (ws.to - ws.from));
}

// adaptivepool_forward: a task is POOL_CHANNELS channels of one image. y is n,channels,oh,ow.
static void adaptivepool_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t blocks = ceildiv(p->channels, POOL_CHANNELS), n = task / blocks, c0 = task % blocks * POOL_CHANNELS;
	int64_t width = least(p->channels - c0, POOL_CHANNELS), windows = p->oh * p->ow;
	float sum[POOL_CHANNELS];
	for (int64_t o = 0; o < windows; o++) {
		struct range hs = cut(o / p->ow, p->h, p->oh), ws = cut(o % p->ow, p->w, p->ow);
		open_sums(sum, 0, width, 0);
		for (int64_t h = hs.from; h < hs.to; h++)
			for (int64_t w = ws.from; w < ws.to; w++) {
				const elem *restrict x = E(p->x) + ((n * p->h + h) * p->w + w) * p->channels + c0;
				for (int64_t c = 0; c < width; c++) sum[c] += of(x[c]);
			}
		float area = cut_area(p, o / p->ow, o % p->ow);
		elem *restrict y = E(p->y) + (n * p->channels + c0) * windows + o;
		for (int64_t c = 0; c < width; c++) y[c * windows] = to(sum[c] / area);
	}
}

// adaptivepool_backward: a task is rows_per_task rows of the input.
static void adaptivepool_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * p->h), windows = p->oh * p->ow;
	float sum[POOL_CHANNELS];
	for (int64_t i = from * p->w; i < past * p->w; i++) {
		int64_t r = i / p->w, w = i % p->w;
		struct range hs = cut(r % p->h, p->oh, p->h), ws = cut(w, p->ow, p->w);
		for (int64_t c0 = 0; c0 < p->channels; c0 += POOL_CHANNELS) {
			int64_t width = least(p->channels - c0, POOL_CHANNELS);
			elem *dx = E(p->dx) + i * p->channels + c0;
			open_sums(sum, dx, width, p->accumulate);
			for (int64_t oh = hs.from; oh < hs.to; oh++)
				for (int64_t ow = ws.from; ow < ws.to; ow++) {
					float share = 1 / cut_area(p, oh, ow);
					const elem *restrict dy = E(p->dy) + (r / p->h * p->channels + c0) * windows + oh * p->ow + ow;
					for (int64_t c = 0; c < width; c++) sum[c] += of(dy[c * windows]) * share;
				}
			close_sums(sum, dx, width, 1);
		}
	}
}

// upsample_forward: a task is rows_per_task rows of the input. A row of the output is kw copies of each pixel; kh rows are
// alike.
static void upsample_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, to = least(from + p->rows_per_task, p->n * p->h), row = p->w * p->kw * p->channels;
	for (int64_t r = from; r < to; r++) {
		elem *first = E(p->y) + r * p->kh * row;
		for (int64_t w = 0; w < p->w * p->kw; w++)
			memcpy(first + w * p->channels, E(p->x) + (r * p->w + w / p->kw) * p->channels, (size_t)p->channels * sizeof(elem));
		for (int64_t k = 1; k < p->kh; k++) memcpy(first + k * row, first, (size_t)row * sizeof(elem));
	}
}

// upsample_backward: a task is rows_per_task rows of the input, whose pixels sum up their copies, row by row.
static void upsample_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct pool_args *p = &job->args.pool;
	int64_t from = task * p->rows_per_task, past = least(from + p->rows_per_task, p->n * p->h), row = p->w * p->kw * p->channels;
	float sum[POOL_CHANNELS];
	for (int64_t i = from * p->w; i < past * p->w; i++) {
		int64_t r = i / p->w, w = i % p->w;
		for (int64_t c0 = 0; c0 < p->channels; c0 += POOL_CHANNELS) {
			int64_t width = least(p->channels - c0, POOL_CHANNELS);
			elem *dx = E(p->dx) + i * p->channels + c0;
			open_sums(sum, dx, width, p->accumulate);
			for (int64_t k = 0; k < p->kh * p->kw; k++) {
				const elem *restrict dy = E(p->dy) + (r * p->kh + k / p->kw) * row + (w * p->kw + k % p->kw) * p->channels + c0;
				for (int64_t c = 0; c < width; c++) sum[c] += of(dy[c]);
			}
			close_sums(sum, dx, width, 1);
		}
	}
}
