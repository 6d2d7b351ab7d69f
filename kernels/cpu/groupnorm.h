// Group normalization (Wu, He 2018): one sample at a time, whose channels are summed as those of a BatchNorm are (norm.h). Channels of a group
// are merged in order.

INLINE float group_weight(const struct norm_args *n, int64_t c) { return n->weight ? F(n->weight)[c] : 1; }

// group_statistics merges the chunks and channels of each group, saves mean and 1/std for each channel, and writes the coefficients mean,
// scale and bias; one task.
static void group_statistics(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels, width = channels / n->groups;
	float *coef = F(n->coef);
	for (int64_t first = 0; first < channels; first += width) {
		double mean = 0, squares = 0, seen = 0;
		for (int64_t c = first; c < first + width; c++)
			for (int64_t q = 0; q < n->chunks; q++) {
				double rows = (double)(n->rows * (q + 1) / n->chunks - n->rows * q / n->chunks);
				const double *part = D(n->part) + q * 2 * channels + c;
				double delta = part[0] - mean, share = rows / (seen + rows);
				mean += delta * share;
				squares += part[channels] + delta * delta * seen * share;
				seen += rows;
			}
		float invstd = (float)(1 / sqrt(squares / seen + n->epsilon));
		for (int64_t c = first; c < first + width; c++) {
			coef[c] = (float)mean;
			coef[channels + c] = invstd * group_weight(n, c);
			coef[2 * channels + c] = n->bias ? F(n->bias)[c] : 0;
			if (n->mean) F(n->mean)[c] = (float)mean;
			if (n->invstd) F(n->invstd)[c] = invstd;
		}
	}
}

// group_params merges the chunks into dbias and dweight and writes the coefficients of the input's gradient,
// dx = scale*g - off - (x - mean)*slope; one task.
static void group_params(const struct job *job, int64_t task, char *scratch) {
	(void)task, (void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels, width = channels / n->groups;
	float *coef = F(n->coef), *dweight = F(n->dweight), *dbias = F(n->dbias);
	double elements = (double)n->rows * (double)width;
	for (int64_t first = 0; first < channels; first += width) {
		double sums = 0, products = 0, invstd = F(n->invstd)[first];
		for (int64_t c = first; c < first + width; c++) {
			double sum = 0, product = 0;
			for (int64_t q = 0; q < n->chunks; q++) {
				sum += D(n->part)[q * 2 * channels + c];
				product += D(n->part)[(q * 2 + 1) * channels + c];
			}
			sums += sum * group_weight(n, c);
			products += product * group_weight(n, c);
			if (dbias) dbias[c] = n->add_params ? dbias[c] + (float)sum : (float)sum;
			if (dweight) dweight[c] = n->add_params ? dweight[c] + (float)product : (float)product;
		}
		for (int64_t c = first; c < first + width; c++) {
			coef[c] = F(n->mean)[c];
			coef[channels + c] = (float)invstd * group_weight(n, c);
			coef[2 * channels + c] = (float)(sums / elements * invstd);
			coef[3 * channels + c] = (float)(products / elements * invstd * invstd);
		}
	}
}

// group_apply writes dx: a task is apply_rows rows.
static void group_apply(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct norm_args *n = &job->args.norm;
	int64_t channels = n->channels, from = task * n->apply_rows, end = least(from + n->apply_rows, n->rows);
	const float *mean = F(n->coef), *scale = mean + channels, *off = scale + channels, *slope = off + channels;
	for (int64_t r = from; r < end; r++) {
		const elem *x = E(n->x) + r * channels, *dy = E(n->dy) + r * channels;
		elem *dx = E(n->dx) + r * channels;
		const int add = n->add_dx != 0;
		INDEPENDENT
		for (int64_t c = 0; c < channels; c++) {
			float v = scale[c] * of(dy[c]) - off[c] - (of(x[c]) - mean[c]) * slope[c];
			dx[c] = to(add ? of(dx[c]) + v : v);
		}
	}
}
