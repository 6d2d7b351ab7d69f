// Activation functions and products, element by element. An output may lie exactly on an input.
#include "plimsoll.cuh"

// slope_of is a function's value and its derivative.
struct slope_of {
	float value, slope;
};

// exponential_of and ratio are far more exact than activations of type T. Of bfloat16 they are the hardware's: within 2^-16 of e^x for |x| below
// 88, and 0 for divisors above 2^126.
template <typename T> INLINE float exponential_of(float x) { return sizeof(T) < sizeof(float) ? __expf(x) : expf(x); }
template <typename T> INLINE float ratio(float x, float y) { return sizeof(T) < sizeof(float) ? __fdividef(x, y) : x / y; }

template <typename T> INLINE slope_of sigmoid(float z) {
	float s = ratio<T>(1, 1 + exponential_of<T>(-z));
	return slope_of{s, s * (1 - s)};
}

struct silu {
	template <typename T> static INLINE slope_of at(float x, float) {
		slope_of s = sigmoid<T>(x);
		return slope_of{x * s.value, s.value + x * s.slope};
	}
};

// gelu_tanh: (1 + tanh u)/2 = sigmoid(2u), and 2u = x*(A + B*x^2). Where the sigmoid's slope is 0, what it is multiplied by
// must be finite.
struct gelu_tanh {
	template <typename T> static INLINE slope_of at(float x, float) {
		const float A = 1.59576912f, B = 0.0713548163f;
		slope_of s = sigmoid<T>(x * (A + B * x * x));
		float far = fabsf(x) < 16 ? x : 16;
		return slope_of{x * s.value, s.value + x * s.slope * (A + 3 * B * far * far)};
	}
};

struct gelu {
	template <typename T> static INLINE slope_of at(float x, float) {
		float phi = 0.5f * erfcf(-0.707106781f * x);
		return slope_of{x * phi, phi + x * exponential_of<T>(-0.5f * x * x) * 0.398942280f};
	}
};

struct logistic {
	template <typename T> static INLINE slope_of at(float x, float) { return sigmoid<T>(x); }
};

struct tangent {
	template <typename T> static INLINE slope_of at(float x, float) {
		float y = tanhf(x);
		return slope_of{y, 1 - y * y};
	}
};

INLINE float hard(float x) {
	float y = x + 3;
	y = y < 0 ? 0 : y;
	return (y > 6 ? 6 : y) * 0.166666667f;
}

struct hard_sigmoid {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{hard(x), x > -3 && x < 3 ? 0.166666667f : 0}; }
};

struct hard_swish {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{x * hard(x), x < -3 ? 0 : x <= 3 ? x * 0.333333333f + 0.5f : 1}; }
};

struct leaky_relu {
	template <typename T> static INLINE slope_of at(float x, float by) { return x > 0 ? slope_of{x, 1} : slope_of{by * x, by}; }
};

struct elu {
	template <typename T> static INLINE slope_of at(float x, float by) { return x > 0 ? slope_of{x, 1} : slope_of{by * expm1f(x), by * expf(x)}; }
};

INLINE float softplus_of(float x) { return x != x ? x : (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))); }

struct softplus {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{softplus_of(x), sigmoid<T>(x).value}; }
};

struct mish {
	template <typename T> static INLINE slope_of at(float x, float) {
		float y = tanhf(softplus_of(x)), far = x > 64 ? 64 : x; // where the slope is 0, what it is multiplied by must be finite
		return slope_of{x * y, y + far * (1 - y * y) * sigmoid<T>(x).value};
	}
};

struct absolute {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{fabsf(x), x > 0 ? 1.0f : x == 0 ? 0.0f : -1.0f}; }
};

struct at_least {
	template <typename T> static INLINE slope_of at(float x, float by) { return slope_of{x < by ? by : x, x > by ? 1.0f : 0.0f}; }
};

struct at_most {
	template <typename T> static INLINE slope_of at(float x, float by) { return slope_of{x > by ? by : x, x < by ? 1.0f : 0.0f}; }
};

struct exponential {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{expf(x), expf(x)}; }
};

struct logarithm {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{logf(x), 1 / x}; }
};

struct root {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{sqrtf(x), 0.5f / sqrtf(x)}; }
};

struct reciprocal {
	template <typename T> static INLINE slope_of at(float x, float) { return slope_of{1 / x, -1 / (x * x)}; }
};

struct power {
	template <typename T> static INLINE slope_of at(float x, float by) {
		return by == 2 ? slope_of{x * x, 2 * x} : slope_of{powf(x, by), by * powf(x, by - 1)};
	}
};

// forward: out = f(a).
template <typename F, typename T, int V> INLINE void forward(const map_args &a) {
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x;
		load_some(x, GLOBAL(const T, a.a) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) x.v[k] = F::template at<T>(x.v[k], a.factor).value;
		store_some(GLOBAL(T, a.out) + i, x, left);
	});
}

// backward: out (+)= a * f'(b).
template <typename F, typename T, int V> INLINE void backward(const map_args &a) {
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> dy, x;
		load_some(dy, GLOBAL(const T, a.a) + i, left);
		load_some(x, GLOBAL(const T, a.b) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) dy.v[k] *= F::template at<T>(x.v[k], a.factor).slope;
		deposit(GLOBAL(T, a.out) + i, dy, left, a.add);
	});
}

#define ACTIVATION(name, function, V) \
	KERNEL(name##_forward_f32, struct map_args) { forward<function, float, V(float)>(a); } \
	KERNEL(name##_forward_bf16, struct map_args) { forward<function, bf16, V(bf16)>(a); } \
	KERNEL(name##_backward_f32, struct map_args) { backward<function, float, V(float)>(a); } \
	KERNEL(name##_backward_bf16, struct map_args) { backward<function, bf16, V(bf16)>(a); }
#define WHOLE(T) wide<T>::elements
#define ONE(T) 1 // of functions that few models have: a quarter or an eighth of the code
ACTIVATION(gelu, gelu, WHOLE)
ACTIVATION(gelu_tanh, gelu_tanh, WHOLE)
ACTIVATION(silu, silu, WHOLE)
ACTIVATION(sigmoid, logistic, ONE)
ACTIVATION(tanh, tangent, ONE)
ACTIVATION(hard_sigmoid, hard_sigmoid, ONE)
ACTIVATION(hard_swish, hard_swish, ONE)
ACTIVATION(leaky_relu, leaky_relu, ONE)
ACTIVATION(elu, elu, ONE)
ACTIVATION(softplus, softplus, ONE)
ACTIVATION(mish, mish, ONE)
ACTIVATION(abs, absolute, ONE)
ACTIVATION(at_least, at_least, ONE)
ACTIVATION(at_most, at_most, ONE)
ACTIVATION(exp, exponential, ONE)
ACTIVATION(log, logarithm, ONE)
ACTIVATION(sqrt, root, ONE)
ACTIVATION(reciprocal, reciprocal, ONE)
ACTIVATION(power, power, ONE)

// multiply_forward: out = a * b.
template <typename T> INLINE void multiply_forward(const map_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> x, y;
		load_some(x, GLOBAL(const T, a.a) + i, left);
		load_some(y, GLOBAL(const T, a.b) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) x.v[k] *= y.v[k];
		store_some(GLOBAL(T, a.out) + i, x, left);
	});
}
INSTANCES(multiply_forward, map_args)

// multiply_backward: da (+)= dy*b, db (+)= dy*a, where they are wanted. Either may lie on dy, a or b.
template <typename T> INLINE void multiply_backward(const multiply_args &a) {
	const int V = wide<T>::elements;
	stream<V>(a.n, [&](i64 i, i64 left) {
		values<V> dy, x, y;
		load_some(dy, GLOBAL(const T, a.dy) + i, left);
		load_some(x, GLOBAL(const T, a.a) + i, left);
		load_some(y, GLOBAL(const T, a.b) + i, left);
#pragma unroll
		for (int k = 0; k < V; k++) y.v[k] *= dy.v[k], x.v[k] *= dy.v[k];
		if (a.da) deposit(GLOBAL(T, a.da) + i, y, left, a.add_a);
		if (a.db) deposit(GLOBAL(T, a.db) + i, x, left, a.add_b);
	});
}
INSTANCES(multiply_backward, multiply_args)
