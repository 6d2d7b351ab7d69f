// Activation functions and products, element by element. An output may lie exactly on an input.

// logistic is the sigmoid of z and its slope, without overflow.
struct logistic { float value, slope; };

INLINE struct logistic logistic_of(float z) {
	float e = exponential(-fabsf(z)), r = 1 / (1 + e);
	return (struct logistic){z >= 0 ? r : e * r, e * r * r};
}

INLINE float silu_of(float x) { return x * logistic_of(x).value; }

INLINE float silu_slope(float x) {
	struct logistic s = logistic_of(x);
	return s.value + x * s.slope;
}

// gelu_tanh: (1 + tanh u)/2 = sigmoid(2u), and 2u = x*(A + B*x^2).
#define GELU_A 1.59576912f
#define GELU_B 0.0713548163f

INLINE float gelu_tanh_of(float x) { return x * logistic_of(x * (GELU_A + GELU_B * x * x)).value; }

INLINE float gelu_tanh_slope(float x) {
	struct logistic s = logistic_of(x * (GELU_A + GELU_B * x * x));
	float far = fabsf(x) < 16 ? x : 16; // where the sigmoid's slope is 0, what it is multiplied by must be finite
	return s.value + x * s.slope * (GELU_A + 3 * GELU_B * far * far);
}

// normal is the normal distribution's Phi(x), and exp(-x^2/2). With t = 1/(1 + 0.3|x|/sqrt(2)), Phi(-|x|) is
// t*exp(-x^2/2) times a polynomial in t, which interpolates it at Chebyshev's nodes with a relative error of 2.4e-8.
struct normal { float phi, bell; };

INLINE struct normal normal_of(float x) {
	float bell = exponential(-0.5f * x * x), t = 1 / (1 + 0.212132034f * fabsf(x));
	float p = -0.0652096671f;
	p = p * t + 0.24510257f;
	p = p * t - 0.261267981f;
	p = p * t + 0.280163691f;
	p = p * t - 0.052027574f;
	p = p * t + 0.109638117f;
	p = p * t + 0.0735615704f;
	p = p * t + 0.0854513577f;
	p = p * t + 0.0845879061f;
	float tail = bell * t * p;
	return (struct normal){x >= 0 ? 1 - tail : tail, bell};
}

INLINE float gelu_of(float x) { return x * normal_of(x).phi; }

INLINE float gelu_slope(float x) {
	struct normal n = normal_of(x);
	return n.phi + x * n.bell * 0.39894228f; // 1/sqrt(2*pi)
}

INLINE float sigmoid_of(float x) { return logistic_of(x).value; }

INLINE float sigmoid_slope(float x) { return logistic_of(x).slope; }

// tanh_of: near 0 by its series, as (1 - e)/(1 + e) loses digits there.
INLINE float tanh_of(float x) {
	float e = exponential(-2 * fabsf(x)), far = (1 - e) / (1 + e), q = x * x;
	float near = x * (1 - q * (0.333333333f - q * (0.133333333f - q * 0.0539682540f)));
	return fabsf(x) < 0.25f ? near : copysignf(far, x);
}

INLINE float tanh_slope(float x) {
	float y = tanh_of(x);
	return 1 - y * y;
}

INLINE float hard_sigmoid_of(float x) {
	float y = x + 3;
	y = y < 0 ? 0 : y;
	return (y > 6 ? 6 : y) * 0.166666667f;
}

INLINE float hard_sigmoid_slope(float x) { return x > -3 && x < 3 ? 0.166666667f : 0; }

INLINE float hard_swish_of(float x) { return x * hard_sigmoid_of(x); }

INLINE float hard_swish_slope(float x) { return x < -3 ? 0 : x <= 3 ? x * 0.333333333f + 0.5f : 1; }

INLINE float leaky_relu_of(float x, float by) { return x > 0 ? x : by * x; }

INLINE float leaky_relu_slope(float x, float by) { return x > 0 ? 1 : by; }

INLINE float elu_of(float x, float by) { return x > 0 ? x : by * expm1f(x); }

INLINE float elu_slope(float x, float by) { return x > 0 ? 1 : by * exponential(x); }

INLINE float softplus_of(float x) { return x != x ? x : (x > 0 ? x : 0) + log1pf(exponential(-fabsf(x))); }

INLINE float softplus_slope(float x) { return sigmoid_of(x); }

INLINE float mish_of(float x) { return x * tanh_of(softplus_of(x)); }

INLINE float mish_slope(float x) {
	float y = tanh_of(softplus_of(x)), far = x > 64 ? 64 : x; // where the slope is 0, what it is multiplied by must be finite
	return y + far * (1 - y * y) * sigmoid_of(x);
}

INLINE float abs_of(float x) { return fabsf(x); }

INLINE float abs_slope(float x) { return x > 0 ? 1 : x == 0 ? 0 : -1; }

// at_least and at_most leave what is no number as it is, without a gradient.
INLINE float at_least_of(float x, float by) { return x < by ? by : x; }

INLINE float at_least_slope(float x, float by) { return x > by ? 1 : 0; }

INLINE float at_most_of(float x, float by) { return x > by ? by : x; }

INLINE float at_most_slope(float x, float by) { return x < by ? 1 : 0; }

INLINE float exp_of(float x) { return expf(x); }

INLINE float exp_slope(float x) { return expf(x); }

INLINE float log_of(float x) { return logf(x); }

INLINE float log_slope(float x) { return 1 / x; }

INLINE float sqrt_of(float x) { return sqrtf(x); }

INLINE float sqrt_slope(float x) { return 0.5f / sqrtf(x); }

INLINE float reciprocal_of(float x) { return 1 / x; }

INLINE float reciprocal_slope(float x) { return -1 / (x * x); }

// power: squares, which norms are made of, are exact, and quick.
INLINE float power_of(float x, float by) { return by == 2 ? x * x : powf(x, by); }

INLINE float power_slope(float x, float by) { return by == 2 ? 2 * x : by * powf(x, by - 1); }

#define ALONE(x) x
#define WITH(x) x, by // of functions that have a parameter

// name_forward: a = x. name_backward: a = dy, b = x.
#define ACTIVATION(name) ACTIVATION_OF(name, ALONE)
#define ACTIVATION_OF(name, GIVEN) \
	static void name##_forward(const struct job *job, int64_t task, char *scratch) { \
		(void)scratch; \
		const struct map_args *m = &job->args.map; \
		int64_t from = task * m->chunk, end = least(from + m->chunk, m->n); \
		const elem *x = E(m->a); \
		elem *y = E(m->out); \
		const float by = m->factor; \
		(void)by; \
		INDEPENDENT \
		for (int64_t i = from; i < end; i++) y[i] = to(name##_of(GIVEN(of(x[i])))); \
	} \
	static void name##_backward(const struct job *job, int64_t task, char *scratch) { \
		(void)scratch; \
		const struct map_args *m = &job->args.map; \
		int64_t from = task * m->chunk, end = least(from + m->chunk, m->n); \
		const elem *dy = E(m->a), *x = E(m->b); \
		elem *dx = E(m->out); \
		const float by = m->factor; \
		(void)by; \
		if (m->accumulate) { \
			INDEPENDENT \
			for (int64_t i = from; i < end; i++) dx[i] = to(of(dx[i]) + of(dy[i]) * name##_slope(GIVEN(of(x[i])))); \
			return; \
		} \
		INDEPENDENT \
		for (int64_t i = from; i < end; i++) dx[i] = to(of(dy[i]) * name##_slope(GIVEN(of(x[i])))); \
	}
ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(sigmoid)
ACTIVATION(tanh)
ACTIVATION(hard_sigmoid)
ACTIVATION(hard_swish)
ACTIVATION_OF(leaky_relu, WITH)
ACTIVATION_OF(elu, WITH)
ACTIVATION(softplus)
ACTIVATION(mish)
ACTIVATION(abs)
ACTIVATION_OF(at_least, WITH)
ACTIVATION_OF(at_most, WITH)
ACTIVATION(exp)
ACTIVATION(log)
ACTIVATION(sqrt)
ACTIVATION(reciprocal)
ACTIVATION_OF(power, WITH)

static void multiply_forward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct map_args *m = &job->args.map;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *a = E(m->a), *b = E(m->b);
	elem *y = E(m->out);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) y[i] = to(of(a[i]) * of(b[i]));
}

// multiply_backward reads an element of all before it writes it: either gradient may lie on dy, a or b.
static void multiply_backward(const struct job *job, int64_t task, char *scratch) {
	(void)scratch;
	const struct multiply_args *m = &job->args.multiply;
	int64_t from = task * m->chunk, end = least(from + m->chunk, m->n);
	const elem *dy = E(m->dy), *a = E(m->a), *b = E(m->b);
	elem *da = E(m->da), *db = E(m->db);
	INDEPENDENT
	for (int64_t i = from; i < end; i++) {
		float u = of(dy[i]) * of(b[i]), v = of(dy[i]) * of(a[i]);
		if (da) da[i] = to(m->add_a ? of(da[i]) + u : u);
		if (db) db[i] = to(m->add_b ? of(db[i]) + v : v);
	}
}
