// A job is one phase of a launch: a kernel, its arguments and its tasks. Addresses are uint64_t, so that the Go side holds jobs in memory
// without pointers. In the jobs of HALF_*, activations and their gradients are bfloat16 in place of float. There packed factors are pairs
// of bfloat16, and depths of blocks count pairs. Counts and strides are in elements unless a comment says otherwise.
#ifndef PLIMSOLL_JOB_H
#define PLIMSOLL_JOB_H

#include <stdbool.h>
#include <stdint.h>

// KNOWS_BF16 says that the compiler knows AVX512-BF16.
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 11 : __GNUC__ >= 10)
#define KNOWS_BF16 1
#else
#define KNOWS_BF16 0
#endif

enum kernel {
	PACK_WEIGHTS,
	GEMM,
	WEIGHT_GRADIENT,
	SUM_PARTS,
	BIAS_GRADIENT,
	NORM_MOMENTS,
	NORM_STATISTICS,
	NORM_APPLY,
	NORM_MOVE,
	NORM_BACKWARD_SUMS,
	NORM_BACKWARD_PARAMS,
	NORM_BACKWARD_APPLY,
	GROUP_STATISTICS,
	GROUP_PARAMS,
	GROUP_APPLY,
	RELU_FORWARD,
	RELU_BACKWARD,
	ADD_FORWARD,
	LOOKUP,
	COPY,
	COPY_COLUMNS,
	NARROW,
	WIDEN,
	MAXPOOL_FORWARD,
	MAXPOOL_BACKWARD,
	AVGPOOL_FORWARD,
	AVGPOOL_BACKWARD,
	GLOBALPOOL_FORWARD,
	GLOBALPOOL_BACKWARD,
	ADAPTIVEPOOL_FORWARD,
	ADAPTIVEPOOL_BACKWARD,
	UPSAMPLE_FORWARD,
	UPSAMPLE_BACKWARD,
	RESIZE_FORWARD,
	RESIZE_BACKWARD,
	PAD_FORWARD,
	PAD_BACKWARD,
	LOSS_FORWARD,
	LOSS_TOTAL,
	LOSS_BACKWARD,
	ELEMENT_LOSS_FORWARD,
	ELEMENT_LOSS_TOTAL,
	ELEMENT_LOSS_BACKWARD,
	DROPOUT,
	GELU_FORWARD,
	GELU_BACKWARD,
	GELU_TANH_FORWARD,
	GELU_TANH_BACKWARD,
	SILU_FORWARD,
	SILU_BACKWARD,
	SIGMOID_FORWARD,
	SIGMOID_BACKWARD,
	TANH_FORWARD,
	TANH_BACKWARD,
	HARD_SIGMOID_FORWARD,
	HARD_SIGMOID_BACKWARD,
	HARD_SWISH_FORWARD,
	HARD_SWISH_BACKWARD,
	LEAKY_RELU_FORWARD,
	LEAKY_RELU_BACKWARD,
	ELU_FORWARD,
	ELU_BACKWARD,
	SOFTPLUS_FORWARD,
	SOFTPLUS_BACKWARD,
	MISH_FORWARD,
	MISH_BACKWARD,
	ABS_FORWARD,
	ABS_BACKWARD,
	AT_LEAST_FORWARD,
	AT_LEAST_BACKWARD,
	AT_MOST_FORWARD,
	AT_MOST_BACKWARD,
	EXP_FORWARD,
	EXP_BACKWARD,
	LOG_FORWARD,
	LOG_BACKWARD,
	SQRT_FORWARD,
	SQRT_BACKWARD,
	RECIPROCAL_FORWARD,
	RECIPROCAL_BACKWARD,
	POWER_FORWARD,
	POWER_BACKWARD,
	ARRANGE_FORWARD,
	ARRANGE_BACKWARD,
	WEIGH_ROWS,
	WEIGHT_OF_ROWS,
	GATE_FORWARD,
	GATE_BACKWARD,
	MULTIPLY_FORWARD,
	MULTIPLY_BACKWARD,
	EMBED_FORWARD,
	EMBED_BACKWARD,
	EMBED_NUMBERS,
	AFFINE,
	POSITION_BACKWARD,
	ROWNORM_FORWARD,
	ROWNORM_BACKWARD,
	ROWNORM_PARAMS,
	ROTARY,
	ATTENTION_FORWARD,
	ATTENTION_BACKWARD,
	ATTENTION_BIAS,
	SGD_UPDATE,
	ADAM_UPDATE,
	MUON_BEGIN,
	MUON_NORMALIZE,
	MUON_POLYNOMIAL,
	MUON_END,
	GUARD_SQUARES,
	GUARD_VERDICT,
	PEAK,
	TRIAD,
	KERNELS
};

enum { ROWS = 112, DEPTH = 256, GAP = 16 };     // GEMM: rows of a block, its depth, what keeps its rows off one cache set
enum { LEAD = DEPTH + GAP };                    // floats from row to row of a packed block
enum { HALF_COLUMNS = 512 };                     // of bfloat16: most columns of a task, whose sums are scratch
enum { IN_PLACE = 1024 };                        // GEMM: most floats between rows that are read where they are
enum { MOST_LINES = 16, FEWEST = 8 };            // GEMM: most rows of an image that a block copies; fewest windows of a row of the grid, and values of its taps of w, worth it
enum { MOST_AHEAD = 1 << 16 };                   // GEMM: floats of an image that are fetched ahead, a part of the second-level cache
enum { GRAD_ROWS = 256, GRAD_COLS = 256 };       // the same for weight gradients
enum { GRAD_DEPTH = 224, GRAD_COPIED = 128 };    // their depth, of windows that are read where they are and of copied ones, or pairs
enum { WIDEST = 32 };                            // columns of a panel of any path
enum { GRAD_IN_PLACE = 512 };                    // most floats between pixels of dy that are read where they are
enum { GRAD_DIRECT = 1 << 14 };                  // most floats between pixels of x, times rows, that no panel is packed for
enum { GRAD_LEAD_A = GRAD_ROWS + GAP, GRAD_LEAD_B = GRAD_COLS + GAP }; // odd numbers of cache lines
enum { NORM_CHANNELS = 256 };                   // channels of a BatchNorm task
enum { POOL_CHANNELS = 256 };                   // channels of a global or adaptive pooling task

enum { EMBED_ROWS = 4096, EMBED_COLUMNS = 64 };  // of the weight's gradient, of an embedding's task
enum { ATT_ROWS = 112, ATT_KEYS = 128 };         // attention: queries and keys of a block
enum { ATT_LEAD = ATT_KEYS + GAP };              // floats from row to row of their scores

// taps is one axis of a window. From row or column g of the grid, tap t looks at image position g*mul + off + t*step. That tap belongs to
// kernel position first + t*stride.
struct taps {
	int64_t count, mul, off, step;
	int64_t first, stride;
};

// grid enumerates output pixels (n, h, w) and knows the window of an image that each looks at. The values of a
// window, taps of h outermost, then taps of w, then depth channels, form a row of a matrix.
struct grid {
	int64_t n, h, w;              // of the grid
	uint64_t image;               // N,height,width,pixel
	int64_t height, width, pixel;
	int64_t depth;                // channels that a tap contributes
	struct taps th, tw;
	int64_t joined;               // the taps of w are one run of tw.count*depth values
};

// pack_args: panels of weights (Out,KH,KW,Depth within a group).
struct pack_args {
	uint64_t weight, packed;
	int64_t groups, out, kh, kw, depth; // out and depth of one group
	struct taps th, tw;                 // which kernel positions
	int64_t transposed;                 // 0: K = taps x depth, columns = out; 1: K = taps x out, columns = depth of a tap and those behind it
	int64_t first, columns;             // columns of a group that are packed
	int64_t k0, k;                      // values [k0, k0+k) of each
	int64_t panels, group_size;         // panels of a group, floats of a group's panels
	int64_t tf32;                       // what is packed is rounded to TF32
	int64_t narrow;                     // of HALF_*: weights are bfloat16
};

// gemm_args: result[pixel][column] (+)= window[pixel][k] * packed[k][column] (+ bias[column]).
struct gemm_args {
	struct grid grid;
	int64_t window_step;          // channels between the windows of two groups
	int64_t k0, k;                // values [k0, k0+k) of a window
	uint64_t packed, bias;        // bias: float[groups*...] or 0
	int64_t group_size;
	int64_t groups, group_columns; // columns of a group
	int64_t first, columns;       // the columns of each group that packed holds
	uint64_t result;              // float n,rows,cols,pixel
	int64_t rows, cols, pixel;
	int64_t mul_h, off_h, mul_w, off_w; // grid (h, w) is result pixel (h*mul_h+off_h, w*mul_w+off_w)
	int64_t accumulate;
	int64_t row_blocks, column_blocks;
	int64_t tf32;                 // windows are rounded to TF32
};

// gradient_args: part[chunk][group][o][tap, c] = sum over the chunk's pixels of dy[pixel][o] * window[pixel][tap, c].
struct gradient_args {
	struct grid grid;
	int64_t window_step;
	uint64_t dy;
	int64_t groups, out, columns; // out and columns of one group
	uint64_t part;
	int64_t accumulate;           // adds to part; only with one chunk
	int64_t chunks, row_blocks, column_blocks;
	int64_t tf32;                 // dy and windows are rounded to TF32
};

// sum_args: out[i] (+)= part[0][i] + part[1][i] + ...
struct sum_args {
	uint64_t part, out;
	int64_t parts, n, accumulate, chunk;
};

// bias_args: out[c] (+)= sum over rows of dy[row][c], in float64.
struct bias_args {
	uint64_t dy, out;
	int64_t rows, channels, accumulate;
};

struct norm_args {
	int64_t rows, channels;
	int64_t chunks, blocks;       // of rows, of channels
	int64_t apply_rows;           // of a task of the apply kernels
	uint64_t x, residual, y, dy, dx, dresidual; // 0: none
	uint64_t weight, bias, running_mean, running_var, dweight, dbias;
	uint64_t mean, invstd;        // saved
	uint64_t part;                // double chunks,2,channels
	uint64_t coef;                // float 4,channels: mean, scale, and for backward the two means that are taken off
	int64_t relu, train, update, add_dx, add_dresidual, add_params;
	int64_t groups;               // of a GroupNorm, whose args are those of one sample
	float epsilon, momentum;
};

struct move_args { // see kernels.Moments
	uint64_t moments, mean, var_; // rows of means and variances, stride floats apart; running ones
	int64_t batches, rows, channels, stride;
	float momentum;
};

struct map_args { // elementwise
	uint64_t a, b, out;
	int64_t n, chunk, accumulate;
	float most; // of a ReLU, 0: any
	float factor, plus; // of kernels.Affine; factor is the parameter of a kernels.Pointwise
};

struct lookup_args { // see kernels.Lookup
	uint64_t x, table, y;
	int64_t pixels, chunk, channels;
};

struct copy_args { // dst[r][0:width] (+)= src[r][0:width]; src 0: zeros
	uint64_t src, dst;
	int64_t rows, width, src_stride, dst_stride, accumulate;
	int64_t rows_per_task, columns_per_task;
};

struct pool_args {
	uint64_t x, y, index, dy, dx;
	int64_t n, h, w, channels, oh, ow;
	int64_t kh, kw, sh, sw, ph, pw;
	int64_t accumulate, rows_per_task;
	int64_t uneven, inside; // of an average: see kernels.AvgPool
};

struct axis { int64_t in, out, nearest; float ratio, shift; }; // see kernels.Axis

struct frame_args { // see kernels.Resize and kernels.Pad
	uint64_t x, y, dy, dx;
	struct axis rows, columns;
	int64_t n, channels, top, left, circular, accumulate, rows_per_task;
};

struct loss_args {
	uint64_t logits, labels, saved, result, dx; // saved: float rows,3; result: float[2]
	uint64_t row_loss;                          // double rows
	uint64_t row_hit;                           // int32 rows
	int64_t rows, classes, accumulate, rows_per_task;
};

struct element_loss_args {
	uint64_t x, targets, result, dx;
	uint64_t losses, right; // of each chunk: double, int32
	int64_t n, chunk, chunks, accumulate, of; // of: a criterion
};

struct dropout_args {
	uint64_t in, out, scalars;
	int64_t n, chunk, accumulate;
	uint64_t salt;
	uint32_t threshold;
	float scale;
};

struct multiply_args { // da (+)= dy*b, db (+)= dy*a; 0: not wanted
	uint64_t dy, a, b, da, db;
	int64_t n, chunk, add_a, add_b;
};

struct embed_args {
	uint64_t x, weight, position, y; // backward: gradients in place of the last three
	int64_t tokens, length, width, vocabulary, positions, per_task, accumulate;
	int64_t fixed;                // the token whose row gets no gradient, -1: none
	uint64_t numbers;             // int32 of each token's position, 0: in order
	int64_t uncounted;            // the token that positions pass over
};

struct rownorm_args {
	uint64_t x, y, dy, dx, weight, bias, dweight, dbias;
	uint64_t mean, inverse;       // saved, by row; no mean and no bias: RMSNorm
	uint64_t part;                // double chunks,2,channels
	int64_t rows, channels, chunks, per_task, add_dx, add_params;
	float epsilon, offset;        // that is added to the weight
};

struct rotary_args {
	uint64_t in, out;
	int64_t samples, length, channels, heads, dim, half, per_task, accumulate;
	double ratio, sign;           // of a pair's angle to the one's before it; -1 turns back
	double factor, low, high, turns; // of kernels.RotaryScaling; no factor: there is none
};

struct attention_args {
	uint64_t x, y, dy, dx, rows;  // rows: log(sum(exp)) of each, or 0
	uint64_t bias, index, mask, dbias; // bias, mask: 0 where there is none
	int64_t heads, kv, dim, length, channels, accumulate, bidirectional;
	int64_t samples, table, masks, mask_heads;
	float scale;
};

enum { MOST_LOOPS = 8 };          // of kernels.Rearrange

struct arrange_args { // see kernels.Rearrange; backward: from dy to dx
	uint64_t src, dst;
	int64_t n, chunk, from, loops, accumulate;
	int64_t count[MOST_LOOPS], stride[MOST_LOOPS];
};

struct weigh_args { // rows of width elements, strides apart, and a parameter of one; backward: its gradient in place of weight, dy of y
	uint64_t x, weight, y;
	int64_t rows, width, x_stride, y_stride, multiply, accumulate;
	int64_t rows_per_task, columns_per_task;
};

struct gate_args { // rows of a sample
	uint64_t x, gate, y, dy, dx, dgate;
	int64_t rows, channels, rows_per_task, add_x, add_gate;
};

struct update_args {
	uint64_t param, grad, state0, state1, scalars;
	uint64_t earlier;             // updates before those that the scalars count
	int64_t n, chunk;
	double momentum, dampening, weight_decay, beta1, beta2, epsilon;
	int64_t nesterov, decoupled;
};

struct muon_args { // see kernels.Muon
	uint64_t param, grad, momentum, scalars;
	uint64_t x, partials;         // the update, and double sums of its squares
	uint64_t square, again;       // side,side: A, and A*A, which becomes a + b*A + c*A*A
	int64_t n, chunk, parts, side;
	int64_t narrow;               // x, A and A*A are bfloat16, else float
	double beta, weight_decay, rate, tiny, a, b, c;
};

struct guard_args {
	uint64_t grad, partials, norm, scalars;
	int64_t n, chunk;             // of the gradient
	int64_t parts;                // partial sums of all gradients
	double max_norm;              // 0: no clipping
};

struct peak_args { int64_t rounds; uint64_t sink; };

struct job {
	int64_t tasks;
	int32_t path, kernel;         // indices into the table of kernels
	uint64_t scratch;             // of the first worker
	int64_t scratch_bytes;        // from worker to worker
	union {
		struct pack_args pack;
		struct gemm_args gemm;
		struct gradient_args gradient;
		struct sum_args sum;
		struct bias_args bias;
		struct norm_args norm;
		struct move_args move;
		struct map_args map;
		struct lookup_args lookup;
		struct copy_args copy;
		struct pool_args pool;
		struct loss_args loss;
		struct element_loss_args element_loss;
		struct dropout_args dropout;
		struct multiply_args multiply;
		struct embed_args embed;
		struct rownorm_args rownorm;
		struct rotary_args rotary;
		struct attention_args attention;
		struct frame_args frame;
		struct arrange_args arrange;
		struct weigh_args weigh;
		struct gate_args gate;
		struct update_args update;
		struct muon_args muon;
		struct guard_args guard;
		struct peak_args peak;
	} args;
};

// HALF_* are no paths of their own: they are those with activations in bfloat16, by conversion. HALVES is HALF_AVX512 with AVX512-BF16.
enum { PLAIN, AVX2, AVX512, PATHS, HALF_PLAIN = PATHS, HALF_AVX2, HALF_AVX512, HALVES };

// share is the part of a job's tasks that one worker does first, in cache lines of its own. Shares are runs of tasks that lie side by side,
// the same runs for jobs with as many tasks. So a worker finds the data that it wrote in its own cache when it reads them.
struct share {
	int64_t next, end;            // the next task to take, atomic
	int64_t apart[14];
};

// pool is threads that work together; see pool.c. plimsoll_pool starts one with so many, the caller's included; 0 when the
// system has no more threads. It lives as long as the process. spins: workers may keep a core while they wait for the next job.
// subnormals: they compute with subnormal numbers.
struct pool;
struct pool *plimsoll_pool(int64_t threads, bool spins, bool subnormals);

// plimsoll_run runs the jobs, one after the other, on the calling thread and others of the pool. shares has room for all of
// its threads.
void plimsoll_run(struct pool *pool, const struct job *jobs, int64_t count, struct share *shares);

// kernel_fn does one task of a job. plimsoll_kernels returns a path's, by number.
typedef void kernel_fn(const struct job *job, int64_t task, char *scratch);
kernel_fn *const *plimsoll_kernels(int32_t path);

// plimsoll_panel returns the columns of a packed panel of a path.
int64_t plimsoll_panel(int32_t path);

// plimsoll_has reports whether this machine and this build have a path.
int plimsoll_has(int32_t path);

#endif
