// Batch normalization (Ioffe, Szegedy 2015), fused with a residual and ReLU.
//
// Sums: a task takes NORM_CHANNELS channels of a chunk of rows. It walks blocks of rows that fit the first-level cache. It forms each
// block's mean and squared deviations (forward) or gradient sums (backward) in float32, and merges them in float64 (Chan, Golub, LeVeque
// 1979). Chunks are merged in order. All of it depends on the shape alone.

enum { NORM_BLOCK = 8192 }; // floats of a block of rows

struct norm_part { int64_t r0, r1, c0, width, step; double *first, *second; };

// norm_part_of says which rows and channels a task sums and where its two sums go.
INLINE struct norm_part norm_part_of(const struct norm_args *n, int64_t task) {
	int64_t chunk = task / n->blocks, block = task % n->blocks;
	struct norm_part p;
	p.r0 = n->rows * chunk / n->chunks;
	p.r1 = n->rows * (chunk + 1) / n->chunks;
	p.c0 = block * NORM_CHANNELS;
	p.width = least(n->channels - p.c0, NORM_CHANNELS);
	p.step = most(NORM_BLOCK / p.width & ~3, 4);
	p.first = D(n->part) + chunk * 2 * n->channels + p.c0;
	p.second = p.first + n->channels;
	return p;
}

// add_rows adds rows of x to sum, four at a time.
INLINE void add_rows(const elem *x, int64_t rows, int64_t stride, int64_t width, float *restrict sum) {
	for (int64_t c = 0; c < width; c++) sum[c] = 0;
	int64_t r = 0;
	for (; r + 4 <= rows; r += 4, x += 4 * stride)
		for (int64_t c = 0; c < width; c++)
			sum[c] += (of(x[c]) + of(x[c + stride])) + (of(x[c + 2 * stride]) + of(x[c + 3 * stride]));
	for (; r < rows; r++, x += stride)
		for (int64_t c = 0; c < width; c++) sum[c] += of(x[c]);
}

INLINE float square(float x) { return x * x; }

// add_squares adds the squared distances of rows of x from mean to sum.
INLINE void add_squares(const elem *x, int64_t rows, int64_t stride, int64_t width, const float *restrict mean, float *restrict sum) {
	for (int64_t c = 0; c < width; c++) sum[c] = 0;
	int64_t r = 0;
	for (; r + 4 <= rows; r += 4, x += 4 * stride)
		for (int64_t c = 0; c < width; c++) {
			float m = mean[c];
			sum[c] += (square(of(x[c]) - m) + square(of(x[c + stride]) - m)) + (square(of(x[c + 2 * stride]) - m) + square(of(x[c + 3 * stride]) - m));
		}
	for (; r < rows; r++, x += stride)
		for (int64_t c = 0; c < width; c++) sum[c] += square(of(x[c]) - mean[c]);
}

// norm_moments: first = mean, second = sum of squared deviations of the task's rows.
static void norm_moments(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct norm_args *n = &job->args.norm;
	struct norm_part p = norm_part_of(n, task);
	float mean[NORM_CHANNELS], sum[NORM_CHANNELS];
	for (int64_t c = 0; c < p.width; c++) p.first[c] = p.second[c] = 0;
	for (int64_t r = p.r0; r < p.r1; r += p.step) {
		int64_t rows = least(p.r1 - r, p.step);
		const elem *x = E(n->x) + r * n->channels + p.c0;
		add_rows(x, rows, n->channels, p.width, sum);
		for (int64_t c = 0; c < p.width; c++) mean[c] = sum[c] / (float)rows;
		add_squares(x, rows, n->channels, p.width, mean, sum);
		double before = (double)(r - p.r0), share = (double)rows / (before + (double)rows);
		for (int64_t c = 0; c < p.width; c++) {
			double delta = mean[c] - p.first[c];
			p.first[c] += delta * share;
			p.second[c] += sum[c] + delta * delta * before * share;
		}
	}
}

// norm_statistics merges the chunks, moves the running statistics and writes the coefficients mean and scale; one task.
static void norm_statistics(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels;
	float *coef = F(n->coef), *running_mean = F(n->running_mean), *running_var = F(n->running_var);
	for (int64_t c = 0; c < channels; c++) {
		double mean = 0, squares = 0, var;
		if (n->train) {
			for (int64_t q = 0; q < n->chunks; q++) {
				double before = (double)(n->rows * q / n->chunks), now = (double)(n->rows * (q + 1) / n->chunks);
				const double *part = D(n->part) + q * 2 * channels + c;
				double delta = part[0] - mean;
				mean += delta * ((now - before) / now);
				squares += part[channels] + delta * delta * before * ((now - before) / now);
			}
			var = squares / (double)n->rows;
		} else {
			mean = running_mean[c];
			var = running_var[c];
		}
		double invstd = 1 / sqrt(var + n->epsilon);
		coef[c] = (float)mean;
		coef[channels + c] = (float)invstd * F(n->weight)[c];
		if (n->mean) F(n->mean)[c] = (float)mean;
		if (n->invstd) F(n->invstd)[c] = (float)invstd;
		if (n->update && isfinite(mean) && isfinite(squares)) {
			// rounded, so that statistics that wait as floats (kernels.Moments) move them by the same bits
			float unbiased = (float)(squares / (double)(n->rows > 1 ? n->rows - 1 : 1)), rounded = (float)mean;
			double m = n->momentum;
			running_mean[c] = (float)((1 - m) * running_mean[c] + m * rounded);
			running_var[c] = (float)((1 - m) * running_var[c] + m * unbiased);
		}
	}
}

INLINE float positive(float x) { return x < 0 ? 0 : x; } // NaN stays NaN

INLINE void apply_row(const elem *x, const elem *residual, elem *y, int64_t channels, const float *restrict mean,
		const float *restrict scale, const float *restrict bias, const int add, const int relu) {
	INDEPENDENT
	for (int64_t c = 0; c < channels; c++) {
		float v = (of(x[c]) - mean[c]) * scale[c] + bias[c];
		if (add) v += of(residual[c]);
		y[c] = to(relu ? positive(v) : v);
	}
}

// norm_apply: a task is apply_rows rows. y = relu((x - mean)*scale + bias + residual).
static void norm_apply(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels, from = task * n->apply_rows, end = least(from + n->apply_rows, n->rows);
	const float *mean = F(n->coef), *scale = mean + channels, *bias = F(n->bias);
	for (int64_t r = from; r < end; r++) {
		const elem *x = E(n->x) + r * channels, *residual = E(n->residual) + r * channels;
		elem *y = E(n->y) + r * channels;
		if (n->residual && n->relu)
			apply_row(x, residual, y, channels, mean, scale, bias, 1, 1);
		else if (n->residual)
			apply_row(x, residual, y, channels, mean, scale, bias, 1, 0);
		else if (n->relu)
			apply_row(x, residual, y, channels, mean, scale, bias, 0, 1);
		else
			apply_row(x, residual, y, channels, mean, scale, bias, 0, 0);
	}
}

// norm_move merges the statistics of a minibatch's batches, in their order, and moves the running ones; one task. It leaves
// -0 in the rows: a variance of -0 is none.
static void norm_move(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct move_args *n = &job->args.move;
	double rows = (double)n->rows, m = n->momentum;
	for (int64_t c = 0; c < n->channels; c++) {
		double mean = 0, squares = 0;
		int whole = 1;
		for (int64_t k = 0; k < n->batches; k++) {
			float *now = F(n->moments) + 2 * k * n->stride + c, *var = now + n->stride;
			double delta = *now - mean;
			mean += delta / (double)(k + 1);
			squares += *var * (rows - 1) + delta * delta * rows * ((double)k / (double)(k + 1));
			if (signbit(*var)) whole = 0;
			*now = *var = -0.0f;
		}
		if (!whole) continue;
		double unbiased = squares / (rows * (double)n->batches - 1);
		F(n->mean)[c] = (float)((1 - m) * F(n->mean)[c] + m * mean);
		F(n->var_)[c] = (float)((1 - m) * F(n->var_)[c] + m * unbiased);
	}
}

// passed is the gradient behind the ReLU.
INLINE float passed(float dy, float y, const int relu) { return relu && y <= 0 ? 0 : dy; }

INLINE void sum_gradients(const elem *x, const elem *y, const elem *dy, int64_t rows, int64_t stride, int64_t width,
		const float *restrict mean, const float *restrict invstd, float *restrict sum, float *restrict product, const int relu) {
	for (int64_t c = 0; c < width; c++) sum[c] = product[c] = 0;
	for (int64_t r = 0; r < rows; r++, x += stride, y += stride, dy += stride)
		for (int64_t c = 0; c < width; c++) {
			float g = passed(of(dy[c]), relu ? of(y[c]) : 1, relu);
			sum[c] += g;
			product[c] += g * ((of(x[c]) - mean[c]) * invstd[c]);
		}
}

// norm_mean and norm_invstd of backward: the saved ones; in evaluation those of the running statistics.
INLINE float norm_mean(const struct norm_args *n, int64_t c) { return n->train ? F(n->mean)[c] : F(n->running_mean)[c]; }
INLINE float norm_invstd(const struct norm_args *n, int64_t c) {
	return n->train ? F(n->invstd)[c] : (float)(1 / sqrt((double)F(n->running_var)[c] + n->epsilon));
}

// norm_backward_sums: first = sum of g, second = sum of g*xhat, over the task's rows.
static void norm_backward_sums(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct norm_args *n = &job->args.norm;
	struct norm_part p = norm_part_of(n, task);
	float mean[NORM_CHANNELS], invstd[NORM_CHANNELS], sum[NORM_CHANNELS], product[NORM_CHANNELS];
	for (int64_t c = 0; c < p.width; c++) {
		mean[c] = norm_mean(n, p.c0 + c);
		invstd[c] = norm_invstd(n, p.c0 + c);
		p.first[c] = p.second[c] = 0;
	}
	for (int64_t r = p.r0; r < p.r1; r += p.step) {
		int64_t rows = least(p.r1 - r, p.step), at = r * n->channels + p.c0;
		const elem *x = E(n->x) + at, *dy = E(n->dy) + at;
		if (n->relu)
			sum_gradients(x, E(n->y) + at, dy, rows, n->channels, p.width, mean, invstd, sum, product, 1);
		else
			sum_gradients(x, dy, dy, rows, n->channels, p.width, mean, invstd, sum, product, 0);
		for (int64_t c = 0; c < p.width; c++) {
			p.first[c] += sum[c];
			p.second[c] += product[c];
		}
	}
}

// norm_backward_params merges the chunks into dbias and dweight and writes the coefficients of the input's
// gradient, dx = scale*(g - off - (x - mean)*slope); one task.
static void norm_backward_params(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels;
	float *coef = F(n->coef), *dweight = F(n->dweight), *dbias = F(n->dbias);
	for (int64_t c = 0; c < channels; c++) {
		double sum = 0, product = 0;
		for (int64_t q = 0; q < n->chunks; q++) {
			sum += D(n->part)[q * 2 * channels + c];
			product += D(n->part)[(q * 2 + 1) * channels + c];
		}
		float invstd = norm_invstd(n, c);
		coef[c] = norm_mean(n, c);
		coef[channels + c] = invstd * F(n->weight)[c];
		coef[2 * channels + c] = n->train ? (float)(sum / (double)n->rows) : 0;
		coef[3 * channels + c] = n->train ? (float)(product / (double)n->rows * invstd) : 0;
		dbias[c] = n->add_params ? dbias[c] + (float)sum : (float)sum;
		dweight[c] = n->add_params ? dweight[c] + (float)product : (float)product;
	}
}

INLINE void apply_gradient_row(const elem *x, const elem *y, const elem *dy, elem *dx, elem *dresidual, int64_t channels,
		const float *restrict coef, const int relu, const int to_x, const int add_x, const int to_residual, const int add_residual) {
	const float *mean = coef, *scale = coef + channels, *off = coef + 2 * channels, *slope = coef + 3 * channels;
	INDEPENDENT
	for (int64_t c = 0; c < channels; c++) {
		float g = passed(of(dy[c]), relu ? of(y[c]) : 1, relu);
		if (to_x) {
			float v = scale[c] * ((g - off[c]) - (of(x[c]) - mean[c]) * slope[c]);
			dx[c] = to(add_x ? of(dx[c]) + v : v);
		}
		if (to_residual) dresidual[c] = to(add_residual ? of(dresidual[c]) + g : g);
	}
}

// norm_backward_apply: a task is apply_rows rows.
static void norm_backward_apply(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels, from = task * n->apply_rows, end = least(from + n->apply_rows, n->rows);
	const float *coef = F(n->coef);
	for (int64_t r = from; r < end; r++) {
		int64_t at = r * channels;
		const elem *x = E(n->x) + at, *dy = E(n->dy) + at, *y = n->relu ? E(n->y) + at : dy;
		elem *dx = E(n->dx) + at, *dres = E(n->dresidual) + at;
		int to_x = n->dx != 0, to_residual = n->dresidual != 0;
		if (n->relu && to_x && !n->add_dx && !to_residual)
			apply_gradient_row(x, y, dy, dx, dres, channels, coef, 1, 1, 0, 0, 0);
		else if (n->relu && to_x && !n->add_dx && !n->add_dresidual)
			apply_gradient_row(x, y, dy, dx, dres, channels, coef, 1, 1, 0, 1, 0);
		else if (!n->relu && to_x && !n->add_dx && !to_residual)
			apply_gradient_row(x, y, dy, dx, dres, channels, coef, 0, 1, 0, 0, 0);
		else
			apply_gradient_row(x, y, dy, dx, dres, channels, coef, n->relu != 0, to_x, n->add_dx != 0, to_residual, n->add_dresidual != 0);
	}
}
