// Embeddings, norms of rows and rotary positions.

// LINES partial sums, whatever the path: sums of rows have the same bits on all.
enum { LINES = 16 };

// folded adds up LINES partial sums: first those that are 8 apart, then 4, 2 and 1.
INLINE float folded(const void *sum) {
	typedef float quad __attribute__((vector_size(16)));
	quad q[LINES / 4];
	memcpy(q, sum, sizeof q);
	quad all = (q[0] + q[2]) + (q[1] + q[3]);
	return (all[0] + all[2]) + (all[1] + all[3]);
}

// FOLD is the sum of an expression of i, from 0 to n.
#define FOLD(result, n, expression) \
	do { \
		float partial[LINES] = {0}; \
		int64_t whole = (n) / LINES * LINES; \
		for (int64_t first = 0; first < whole; first += LINES) \
			for (int64_t j = 0; j < LINES; j++) { \
				int64_t i = first + j; \
				partial[j] += (expression); \
			} \
		for (int64_t i = whole; i < (n); i++) partial[i - whole] += (expression); \
		(result) = folded(partial); \
	} while (0)

// embed_forward: a task is some tokens.
static void embed_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct embed_args *e = &job->args.embed;
	int64_t from = task * e->per_task, end = least(from + e->per_task, e->tokens);
	for (int64_t r = from; r < end; r++) {
		int32_t token = I(e->x)[r];
		int known = token >= 0 && token < e->vocabulary;
		const float *restrict row = F(e->weight) + (known ? token : 0) * e->width;
		elem *restrict y = E(e->y) + r * e->width;
		if (!known) {
			for (int64_t c = 0; c < e->width; c++) y[c] = to(NAN);
		} else if (e->position) {
			const float *restrict at = F(e->position) + (e->numbers ? I(e->numbers)[r] : r % e->length) * e->width;
			for (int64_t c = 0; c < e->width; c++) y[c] = to(row[c] + at[c]);
		} else
			for (int64_t c = 0; c < e->width; c++) y[c] = to(row[c]);
	}
}

// embed_numbers: a task is a sample, whose tokens get the numbers of their positions.
static void embed_numbers(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct embed_args *e = &job->args.embed;
	const int32_t *x = I(e->x) + task * e->length;
	int32_t *number = I(e->numbers) + task * e->length, none = (int32_t)e->uncounted, counted = none;
	for (int64_t t = 0; t < e->length; t++) number[t] = x[t] == none ? none : ++counted;
}

// embed_backward: a task is EMBED_COLUMNS columns of EMBED_ROWS rows of the weight. It goes through all tokens and adds the
// gradients of those that are its own, in their order.
static void embed_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct embed_args *e = &job->args.embed;
	int64_t blocks = ceildiv(e->width, EMBED_COLUMNS), c0 = task % blocks * EMBED_COLUMNS, columns = least(EMBED_COLUMNS, e->width - c0);
	int64_t from = task / blocks * EMBED_ROWS, to = least(from + EMBED_ROWS, e->vocabulary);
	float *weight = F(e->weight) + c0;
	for (int64_t v = from; !e->accumulate && v < to; v++) memset(weight + v * e->width, 0, (size_t)columns * 4);
	for (int64_t r = 0; r < e->tokens; r++) {
		int32_t token = I(e->x)[r];
		if (token < from || token >= to || token == e->fixed) continue;
		const elem *restrict dy = E(e->y) + r * e->width + c0;
		float *restrict row = weight + token * e->width;
		for (int64_t c = 0; c < columns; c++) row[c] += of(dy[c]);
	}
}

// position_backward: a task is some positions; those behind the end of the sequences get zeros.
static void position_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct embed_args *e = &job->args.embed;
	int64_t from = task * e->per_task, to = least(from + e->per_task, e->positions);
	for (int64_t t = from; t < to; t++) {
		float *restrict row = F(e->position) + t * e->width;
		if (!e->accumulate) memset(row, 0, (size_t)e->width * 4);
		for (int64_t r = t; t < e->length && r < e->tokens; r += e->length) {
			const elem *restrict dy = E(e->y) + r * e->width;
			for (int64_t c = 0; c < e->width; c++) row[c] += of(dy[c]);
		}
	}
}

// rownorm_forward: a task is some rows. y may lie on x.
static void rownorm_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct rownorm_args *n = &job->args.rownorm;
	int64_t channels = n->channels, from = task * n->per_task, end = least(from + n->per_task, n->rows);
	const float *weight = F(n->weight), *bias = F(n->bias);
	for (int64_t r = from; r < end; r++) {
		const elem *x = E(n->x) + r * channels;
		elem *y = E(n->y) + r * channels;
		float mean = 0, squares;
		if (bias) {
			FOLD(mean, channels, of(x[i]));
			mean /= (float)channels;
		}
		FOLD(squares, channels, (of(x[i]) - mean) * (of(x[i]) - mean));
		float inverse = (float)(1 / sqrt((double)squares / (double)channels + n->epsilon));
		if (n->mean) F(n->mean)[r] = mean;
		if (n->inverse) F(n->inverse)[r] = inverse;
		if (bias) {
			INDEPENDENT
			for (int64_t i = 0; i < channels; i++) y[i] = to((of(x[i]) - mean) * inverse * (weight[i] + n->offset) + bias[i]);
		} else {
			INDEPENDENT
			for (int64_t i = 0; i < channels; i++) y[i] = to(of(x[i]) * inverse * (weight[i] + n->offset));
		}
	}
}

// rownorm_backward: a task is a chunk of rows, whose parts of dweight and dbias it leaves in float64. With h = (x-mean)/std and
// g = dy*weight, dx = (g - mean(g) - h*mean(g*h))/std. dx may lie on x or dy.
static void rownorm_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct rownorm_args *n = &job->args.rownorm;
	int64_t channels = n->channels, from = n->rows * task / n->chunks, end = n->rows * (task + 1) / n->chunks;
	double *restrict dweight = D(n->part) + task * 2 * channels, *restrict dbias = dweight + channels;
	const float *weight = F(n->weight);
	memset(dweight, 0, (size_t)channels * 2 * sizeof(double));
	for (int64_t r = from; r < end; r++) {
		const elem *x = E(n->x) + r * channels, *dy = E(n->dy) + r * channels;
		elem *dx = E(n->dx) + r * channels;
		float sum = 0, product;
		float mean = n->mean ? F(n->mean)[r] : 0, inverse = F(n->inverse)[r];
		for (int64_t i = 0; i < channels; i++) dweight[i] += of(dy[i]) * ((of(x[i]) - mean) * inverse);
		if (n->mean) {
			for (int64_t i = 0; i < channels; i++) dbias[i] += of(dy[i]);
			FOLD(sum, channels, of(dy[i]) * (weight[i] + n->offset));
		}
		if (!n->dx) continue;
		FOLD(product, channels, of(dy[i]) * (weight[i] + n->offset) * ((of(x[i]) - mean) * inverse));
		sum /= (float)channels;
		product /= (float)channels;
		INDEPENDENT
		for (int64_t i = 0; i < channels; i++) {
			float v = (of(dy[i]) * (weight[i] + n->offset) - sum - (of(x[i]) - mean) * inverse * product) * inverse;
			dx[i] = to(n->add_dx ? of(dx[i]) + v : v);
		}
	}
}

// rownorm_params merges the chunks; a task is NORM_CHANNELS channels.
static void rownorm_params(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct rownorm_args *n = &job->args.rownorm;
	float *out[2] = {F(n->dweight), F(n->dbias)};
	for (int64_t c = task * NORM_CHANNELS; c < least((task + 1) * NORM_CHANNELS, n->channels); c++)
		for (int64_t k = 0; k < 2 && out[k]; k++) {
			double sum = 0;
			for (int64_t q = 0; q < n->chunks; q++) sum += D(n->part)[(2 * q + k) * n->channels + c];
			out[k][c] = n->add_params ? out[k][c] + (float)sum : (float)sum;
		}
}

// turn turns the pairs of a head. out may lie on in.
INLINE void turn(const elem *in, elem *out, int64_t half, const float *cosine, const float *sine, const int accumulate) {
	INDEPENDENT
	for (int64_t i = 0; i < half; i++) {
		float x = of(in[i]), y = of(in[i + half]), u = x * cosine[i] - y * sine[i], v = y * cosine[i] + x * sine[i];
		out[i] = to(accumulate ? of(out[i]) + u : u);
		out[i + half] = to(accumulate ? of(out[i + half]) + v : v);
	}
}

// slowed returns the angle of a pair between two positions, as kernels.RotaryScaling has it.
static double slowed(const struct rotary_args *a, double angle) {
	if (a->factor == 0) return angle;
	double kept = (a->turns * angle - a->low) / (a->high - a->low);
	kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
	return angle * ((1 - kept) / a->factor + kept);
}

// rotary: a task is some positions of all samples. Scratch: float 2,half.
static void rotary(const struct job *job, int64_t task, char *scratch) {
	const struct rotary_args *a = &job->args.rotary;
	int64_t half = a->half, turned = a->heads * a->dim, from = task * a->per_task, end = least(from + a->per_task, a->length);
	float *cosine = (float *)scratch, *sine = cosine + half;
	for (int64_t t = from; t < end; t++) {
		double frequency = 1;
		for (int64_t i = 0; i < half; i++, frequency *= a->ratio) {
			double angle = (double)t * slowed(a, frequency);
			cosine[i] = (float)cos(angle);
			sine[i] = (float)(a->sign * sin(angle));
		}
		for (int64_t n = 0; n < a->samples; n++) {
			const elem *in = E(a->in) + (n * a->length + t) * a->channels;
			elem *out = E(a->out) + (n * a->length + t) * a->channels;
			for (int64_t h = 0; h < a->heads; h++) {
				if (a->accumulate)
					turn(in + h * a->dim, out + h * a->dim, half, cosine, sine, 1);
				else
					turn(in + h * a->dim, out + h * a->dim, half, cosine, sine, 0);
				for (int64_t i = h * a->dim + 2 * half; i < (h + 1) * a->dim; i++) out[i] = to(a->accumulate ? of(out[i]) + of(in[i]) : of(in[i]));
			}
			INDEPENDENT
			for (int64_t i = turned; i < a->channels; i++) out[i] = to(a->accumulate ? of(out[i]) + of(in[i]) : of(in[i]));
		}
	}
}
