// All kernels of one path and the table of them.
#include "gemm.h"
#include "norm.h"
#include "map.h"
#include "pool.h"
#include "frame.h"
#include "loss.h"
#include "dropout.h"
#include "activation.h"
#include "sequence.h"
#include "attention.h"
#include "arrange.h"
#if !HALF // what no activation is part of
#include "update.h"
#include "guard.h"
#include "peak.h"
#endif

static kernel_fn *const table[KERNELS] = {
	[PACK_WEIGHTS] = pack_weights,
	[GEMM] = gemm,
	[WEIGHT_GRADIENT] = weight_gradient,
	[SUM_PARTS] = sum_parts,
	[BIAS_GRADIENT] = bias_gradient,
	[NORM_MOMENTS] = norm_moments,
	[NORM_STATISTICS] = norm_statistics,
	[NORM_APPLY] = norm_apply,
	[NORM_MOVE] = norm_move,
	[NORM_BACKWARD_SUMS] = norm_backward_sums,
	[NORM_BACKWARD_PARAMS] = norm_backward_params,
	[NORM_BACKWARD_APPLY] = norm_backward_apply,
	[RELU_FORWARD] = relu_forward,
	[RELU_BACKWARD] = relu_backward,
	[ADD_FORWARD] = add_forward,
	[LOOKUP] = lookup,
	[COPY] = copy,
	[COPY_COLUMNS] = copy_columns,
	[MAXPOOL_FORWARD] = maxpool_forward,
	[MAXPOOL_BACKWARD] = maxpool_backward,
	[AVGPOOL_FORWARD] = avgpool_forward,
	[AVGPOOL_BACKWARD] = avgpool_backward,
	[GLOBALPOOL_FORWARD] = globalpool_forward,
	[GLOBALPOOL_BACKWARD] = globalpool_backward,
	[ADAPTIVEPOOL_FORWARD] = adaptivepool_forward,
	[ADAPTIVEPOOL_BACKWARD] = adaptivepool_backward,
	[UPSAMPLE_FORWARD] = upsample_forward,
	[UPSAMPLE_BACKWARD] = upsample_backward,
	[RESIZE_FORWARD] = resize_forward,
	[RESIZE_BACKWARD] = resize_backward,
	[PAD_FORWARD] = pad_forward,
	[PAD_BACKWARD] = pad_backward,
	[LOSS_FORWARD] = loss_forward,
	[LOSS_TOTAL] = loss_total,
	[LOSS_BACKWARD] = loss_backward,
	[DROPOUT] = dropout,
	[GELU_FORWARD] = gelu_forward,
	[GELU_BACKWARD] = gelu_backward,
	[GELU_TANH_FORWARD] = gelu_tanh_forward,
	[GELU_TANH_BACKWARD] = gelu_tanh_backward,
	[SILU_FORWARD] = silu_forward,
	[SILU_BACKWARD] = silu_backward,
	[SIGMOID_FORWARD] = sigmoid_forward,
	[SIGMOID_BACKWARD] = sigmoid_backward,
	[TANH_FORWARD] = tanh_forward,
	[TANH_BACKWARD] = tanh_backward,
	[HARD_SIGMOID_FORWARD] = hard_sigmoid_forward,
	[HARD_SIGMOID_BACKWARD] = hard_sigmoid_backward,
	[HARD_SWISH_FORWARD] = hard_swish_forward,
	[HARD_SWISH_BACKWARD] = hard_swish_backward,
	[ARRANGE_FORWARD] = arrange_forward,
	[ARRANGE_BACKWARD] = arrange_backward,
	[WEIGH_ROWS] = weigh_rows,
	[WEIGHT_OF_ROWS] = weight_of_rows,
	[GATE_FORWARD] = gate_forward,
	[GATE_BACKWARD] = gate_backward,
	[MULTIPLY_FORWARD] = multiply_forward,
	[MULTIPLY_BACKWARD] = multiply_backward,
	[EMBED_FORWARD] = embed_forward,
	[EMBED_BACKWARD] = embed_backward,
	[EMBED_NUMBERS] = embed_numbers,
	[AFFINE] = affine,
	[POSITION_BACKWARD] = position_backward,
	[ROWNORM_FORWARD] = rownorm_forward,
	[ROWNORM_BACKWARD] = rownorm_backward,
	[ROWNORM_PARAMS] = rownorm_params,
	[ROTARY] = rotary,
	[ATTENTION_FORWARD] = attention_forward,
	[ATTENTION_BACKWARD] = attention_backward,
	[ATTENTION_BIAS] = attention_bias,
#if HALF
	[NARROW] = narrow,
	[WIDEN] = widen,
#else
	[SGD_UPDATE] = sgd_update,
	[ADAM_UPDATE] = adam_update,
	[MUON_BEGIN] = muon_begin,
	[MUON_NORMALIZE] = muon_normalize,
	[MUON_POLYNOMIAL] = muon_polynomial,
	[MUON_END] = muon_end,
	[GUARD_SQUARES] = guard_squares,
	[GUARD_VERDICT] = guard_verdict,
	[PEAK] = peak,
	[TRIAD] = triad,
#endif
};
