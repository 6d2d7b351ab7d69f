// The argument of every kernel: plain C, read by cgo and by the kernels alike, so that there is one layout.
//
// Addresses are device addresses; 0 means that the operand is absent. Flags are 0 or 1. Wherever a kernel has
// variants _f32 and _bf16, they say the type of activations and their gradients; everything else is float32. Variants _tf32
// of products have activations in float32 and round all factors to TF32.
#ifndef PLIMSOLL_ARGS_H
#define PLIMSOLL_ARGS_H

typedef unsigned long long u64;
typedef long long i64;

// The factors of a product are rounded to one of these.
enum rounding { EXACT, TO_BF16, TO_TF32 };

// map_args: element by element. out (+)= f(a, b), n elements.
struct map_args {
	u64 a, b, out;
	i64 n;
	int add;    // to what out holds
	float most; // of a ReLU, 0: any
	float factor, plus; // of kernels.Affine; factor is the parameter of a kernels.Pointwise
};

// lookup_args: y[i] = table[i % channels][x[i]] for n bytes. See kernels.Lookup.
struct lookup_args {
	u64 x, table, y;
	i64 n;
	int channels;
};

// strip_args: out[r*out_stride + c] (+)= in[r*in_stride + c] for r < rows, c < width; strides in elements. Without in:
// zeros.
struct strip_args {
	u64 in, out;
	i64 rows, in_stride, out_stride;
	int width, add;
};

// dropout_args: out (+)= in*scale where the element's word reaches the threshold, else 0. See kernels.DropoutStream.
struct dropout_args {
	u64 in, out, scalars, salt;
	i64 n;
	unsigned threshold;
	float scale;
	int add;
};

// pool_args: images n,h,w,c and windows oh x ow. index holds the position of a maximum in its image, y*w + x.
struct pool_args {
	u64 x, y, dx, dy, index;
	int n, h, w, c, oh, ow, kh, kw, sh, sw, ph, pw, add; // kh and kw of an upsampling: the copies of a pixel
	float share; // 1/(kh*kw), or 1/(h*w) of a global pool
	int uneven, inside; // of an average: see kernels.AvgPool
};

// norm_args: batch normalization of rows x channels.
// part holds chunks x 2 x channels float64, coef 4 x channels float32.
struct norm_args {
	u64 x, residual, y, dy, dx, dresidual, weight, bias, running_mean, running_var, mean, invstd, dweight, dbias, part, coef;
	i64 rows, chunk_rows; // rows of one chunk, the last may have fewer
	double epsilon, momentum;
	int channels, chunks, relu, train, update, add_dx, add_dresidual, add_params;
	int groups; // of a group normalization, whose arguments are those of one sample
};

// move_args: see kernels.Moments. moments holds rows of float32, stride apart.
struct move_args {
	u64 moments, mean, var;
	i64 rows, stride;
	double momentum;
	int channels, batches;
};

// columns_args: out[c] (+)= the sum of rows x channels of in over the rows; part holds chunks x channels float64.
struct columns_args {
	u64 in, out, part;
	i64 rows, chunk_rows;
	int channels, chunks, add;
};

// loss_args: softmax with cross entropy of rows x classes; saved holds rows x 3 float32, row_loss holds rows float64, row_hit rows int32.
struct loss_args {
	u64 logits, labels, saved, result, dx, row_loss, row_hit;
	int rows, classes, add;
};

// element_loss_args: the mean of a criterion over n elements; losses holds a float64 of each of the blocks, right an int32.
struct element_loss_args {
	u64 x, targets, result, dx, losses, right;
	i64 n;
	int blocks, add, of;
};

// multiply_args: da (+)= dy*b, db (+)= dy*a, n elements; 0: not wanted.
struct multiply_args {
	u64 dy, a, b, da, db;
	i64 n;
	int add_a, add_b;
};

// embed_args: rows of weight, and of position when there are any, by token. Backward: gradients in place of weight, position and y.
// Backward sorts rows by token. Each pass sorts by the digit of SORT_BITS bits from shift on, from unsorted (0: rows as they are) to order,
// int32; a block takes chunk rows. The field counts holds blocks x digits int32, starts vocabulary + 1 int32, parts pieces x width float32.
struct embed_args {
	u64 x, weight, position, y, unsorted, order, counts, starts, parts;
	int tokens, length, width, vocabulary, positions, add, chunk, shift;
	int fixed; // the token whose row gets no gradient, -1: none
	u64 numbers; // int of each token's position, 0: in order
	int uncounted; // the token that positions pass over
};

// frame_axis: see kernels.Axis.
struct frame_axis {
	int in, out, nearest;
	float ratio, shift;
};

// frame_args: see kernels.Resize and kernels.Pad.
struct frame_args {
	u64 x, y, dy, dx;
	struct frame_axis rows, columns;
	int n, c, top, left, circular, add;
};

// rownorm_args: norms of rows of so many channels; without mean and bias: RMSNorm. part holds chunks x 2 x channels float64.
struct rownorm_args {
	u64 x, y, dy, dx, weight, bias, dweight, dbias, mean, inverse, part;
	i64 rows, chunk_rows;
	double epsilon;
	int channels, chunks, add_dx, add_params;
	float offset; // that is added to the weight
};

// rotary_args: see kernels.Rotary. table holds length x 2*half float32: cosine and sine of each pair; sign -1 turns back.
struct rotary_args {
	u64 in, out, table;
	i64 rows;
	double ratio, sign;
	double factor, low, high, turns; // of kernels.RotaryScaling; no factor: there is none
	int length, channels, heads, dim, half, add;
};

// attention_args: see kernels.Attention. rows: log(sum(exp)) of each row, or 0; means: the sum of dy*y of each. There are total rows.
struct attention_args {
	u64 x, y, dy, dx, rows, means;
	u64 bias, index, mask, dbias, terms; // bias and mask: 0 where there is none; terms: parts x heads x length x length float32
	i64 total, channels, samples;
	int heads, kv, dim, length, add, bidirectional, table, masks, mask_heads, parts; // parts: of the samples
	float scale;
};

enum { MOST_LOOPS = 8 };

// arrange_args: see kernels.Rearrange. Backward: from dy to dx.
struct arrange_args {
	u64 in, out;
	i64 n, from, count[MOST_LOOPS], stride[MOST_LOOPS];
	int loops, add;
};

// weigh_args: rows of width elements, strides apart, and a parameter of one. Backward: its gradient in place of weight, dy of y; part holds
// chunks x width float64.
struct weigh_args {
	u64 x, weight, y, part;
	i64 rows, width, x_stride, y_stride, chunks, chunk_rows;
	int multiply, add;
};

// gate_args: see kernels.Gate; rows of a sample.
struct gate_args {
	u64 x, gate, y, dy, dx, dgate;
	i64 samples, rows, channels;
	int add_x, add_gate;
};

// Tensors that one launch of an update can change: its argument must stay under 4 KiB.
enum { UPDATE_TENSORS = 64 };

// update_args: one optimizer step of count tensors of n elements each, float32 but for gradients in bf16, which narrow has a bit for. Blocks of
// tensor i begin at first[i]; first[count] is the end.
struct update_args {
	u64 scalars, narrow;
	double momentum, dampening, weight_decay, beta1, beta2, epsilon;
	int nesterov, decoupled, count;
	int first[UPDATE_TENSORS + 1];
	u64 param[UPDATE_TENSORS], grad[UPDATE_TENSORS], state0[UPDATE_TENSORS], state1[UPDATE_TENSORS];
	u64 rounded[UPDATE_TENSORS]; // bf16: copies of the parameters; 0: none
	u64 earlier[UPDATE_TENSORS]; // updates before those that the scalars count
	i64 n[UPDATE_TENSORS];
};

// muon_args: the parts of a step of one matrix that are no products, see kernels.Muon. The update is x, of n elements; partials holds
// double sums of the squares of its chunks. The fields square and again are side,side: A, and A*A, which becomes a + b*A + c*A*A.
struct muon_args {
	u64 scalars, param, rounded, grad, momentum, x, partials, square, again;
	i64 n, chunk, parts, side;
	int narrow, half; // narrow: the gradient is bf16; half: x, square and again are, else float
	double beta, weight_decay, rate, tiny, a, b, c;
};

// Gradients that one launch of guard_squares can measure: its argument must stay under 4 KiB.
enum { GUARD_GRADIENTS = 160 };
enum { GUARD_WORDS = 3 }; // with a bit for each of them

// guard_args: partials[i] = the sum of squares of chunk i. Chunks of gradient j begin at first[j]; first[count] is the end. narrow has a bit for
// each gradient in bf16.
struct guard_args {
	u64 partials;
	u64 narrow[GUARD_WORDS];
	i64 chunk;
	int count;
	int first[GUARD_GRADIENTS + 1];
	u64 grad[GUARD_GRADIENTS];
	i64 n[GUARD_GRADIENTS];
};

// verdict_args: judges parts float64 sums of squares.
struct verdict_args {
	u64 partials, norm, scalars;
	i64 parts;
	double max_norm;
};

// geometry of a convolution. Linear layers and 1x1 convolutions without stride or padding come as one row of pixels.
struct geometry {
	int n, h, w, c;    // the input's images
	int oh, ow, o;     // the output's
	int kh, kw, sh, sw, ph, pw, dh, dw, groups;
	int backward;      // 1: the product is the input's gradient
	int joined;        // 1: the taps along w follow one another in memory and count as one
	int inner, padded; // channels that follow one another for a tap, and rounded up to whole slabs
	int columns;       // columns of packed weights, rounded up to whole tiles
	int rows;          // pixels of the largest class (see window in conv.cuh), or output pixels
	int slabs;         // slabs of the largest class, or of all pixels
	int splits;        // parts into which the slabs are cut
};

// conv_args: an implicit matrix product. image is what windows look at; other is packed weights, or the output's
// gradient when the product is the weight's gradient. With splits > 1, out holds splits partial results in float32.
struct conv_args {
	u64 image, other, bias, out;
	int add;
	struct geometry g;
};

// fold: how a row of the weights lies in a folded kernel, see fold in src/conv.cuh. pixel 0: it is not folded.
struct fold {
	int pixel;    // channels of a pixel of the folded image, those of the padding included
	int channels; // of the weights
	int taps;     // of the weights along w
};

// pack_args: weights o,kh,kw,c/groups to the panels that a product reads: class, group, slab, then tile (see conv.cuh).
struct pack_args {
	u64 weight, packed;
	struct geometry g;
	struct fold fold;
	int depth; // values of a slab
	int round; // enum rounding: weights, whatever the panels hold
	int narrow; // weights are bf16, not float
};

// sum_args: out (+)= bias[i % columns] + the sum of splits partial results of n float32, in order.
struct sum_args {
	u64 partial, bias, out;
	i64 n;
	int splits, columns, add;
};

// fold_args: rows of w pixels of c channels to rows of width elements, n elements in all. A pixel gets pixel channels, a row pad pixels in
// front; all of them and the end of the row are zeros.
struct fold_args {
	u64 in, out;
	i64 n;
	int w, c, width, pixel, pad;
};

// unfold_args: out (+)= the sum of splits partial results, in order. out holds n weights; a partial result holds rows of width elements of
// the folded kernel, partial_size in all.
struct unfold_args {
	u64 partial, out;
	i64 n, partial_size;
	int width, splits, add;
	struct fold fold;
};

// Elements of bf16 in 16 bytes, and the edges of a row of them: the columns before its first and behind its last 16 aligned bytes.
enum { EDGE_ALIGNMENT = 8, EDGES = 16 };

// edge_args: count rows of o columns and their edges, of which there are EDGES in a row, zeros behind them. Row r is of class
// r % classes; rows of a class are aligned alike. weight: o x c float32.
struct edge_args {
	u64 rows, edges, weight, out;
	i64 count;
	int o, c, classes;
	int narrow; // weights are bf16, not float
};

// widen_args: rows of c columns to rows of padded ones in bf16, n elements in all. The columns behind give the product of both results a
// bias. They hold ones on the one side, on the other the bias in as many parts as its 24 bits need.
enum { BIAS_PARTS = 3 };
struct widen_args {
	u64 in, bias, out;
	i64 n;
	int c, padded;
	int narrow; // in is bf16, not float
};

// proof_args: outputs by the definition, from image (X), weight and gradient (DY); g has the op's own numbers, nothing
// joined or cut. Terms of an output: taps and channels, or pixels.
struct proof_args {
	u64 image, weight, gradient, bias, out;
	u64 at;           // which outputs, samples i64
	i64 samples;      // or how many outputs there are
	i64 terms, slice; // of an output; of a thread
	int pass;         // 0 forward, 1 the input's gradient, 2 the weight's
	int add, round;   // to what out holds; enum rounding: weights
	int narrow;       // weights are bf16, not float
	struct geometry g;
};

// sample_args: out[i] = in[at[i]], n of them.
struct sample_args {
	u64 in, at, out;
	i64 n;
};

// draw_args: n random elements at in, or what has changed of those from first on.
struct draw_args {
	u64 in, seed, changed;
	i64 first, n;
};

#endif
