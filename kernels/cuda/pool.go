//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import "plimsoll/kernels"

// pool is a maximum or an average over windows: name_forward and name_backward.
func (b *builder) pool(op kernels.AvgPool, name string) {
	x := b.call.In[0]
	y, _ := b.call.Op.Infer(b.call.In)
	args := b.poolArgs(x)
	args.oh, args.ow = C.int(y.Shape[1]), C.int(y.Shape[2])
	args.kh, args.kw, args.sh, args.sw = C.int(op.KernelH), C.int(op.KernelW), C.int(op.StrideH), C.int(op.StrideW)
	args.ph, args.pw = C.int(op.PadH), C.int(op.PadW)
	args.share, args.uneven, args.inside = C.float(1/(float64(op.KernelH)*float64(op.KernelW))), flag(op.Uneven()), flag(op.Inside)
	if b.call.Pass == kernels.Forward {
		b.pixels(name+"_forward", x.DType, args, y.Shape)
	} else if !b.call.Skips(0) {
		b.pixels(name+"_backward", x.DType, args, x.Shape)
	}
}

func (b *builder) poolArgs(x kernels.Desc) C.struct_pool_args {
	return C.struct_pool_args{
		x: b.at(kernels.X, 0), y: b.at(kernels.Y, 0), dx: b.at(kernels.DX, 0), dy: b.at(kernels.DY, 0), index: b.at(kernels.Save, 0),
		n: C.int(x.Shape[0]), h: C.int(x.Shape[1]), w: C.int(x.Shape[2]), c: C.int(x.Shape[3]), add: flag(b.call.Adds(0)),
	}
}

// maxImages is the grid's extent over images and rows at most; the kernels walk over more.
const maxImages = 1<<16 - 1

// pixels appends a kernel with a thread for each vector of channels of images of this shape.
func (b *builder) pixels(function string, d kernels.DType, args C.struct_pool_args, shape kernels.Shape) {
	addPixels(b, function, d, args, shape)
}

// addPixels is pixels with arguments of any type.
func addPixels[T any](b *builder, function string, d kernels.DType, args T, shape kernels.Shape) {
	l := newLanes(d, int64(shape[3]), 0, 1)
	addPlaces(b, function+l.suffix(d), args, shape, l.vector)
}

// addPlaces appends a kernel with a thread for each vector of elements of the images' rows.
func addPlaces[T any](b *builder, function string, args T, shape kernels.Shape, vector int64) {
	row := int64(shape[2]) * int64(shape[3])
	if row > kernels.MaxExtent-streamThreads {
		b.fail("a row of %d pixels of %d channels has more than %d elements", shape[2], shape[3], kernels.MaxExtent-streamThreads)
		return
	}
	row /= vector
	threads := min(ceil(row, 32)*32, streamThreads)
	grid := dim{ceil(row, threads), min(int64(shape[1]), maxImages), min(int64(shape[0]), maxImages)}
	addStep(b, "pool", function, grid, dim{threads, 1, 1}, 0, args)
}

// globalPool is the mean over each image.
func (b *builder) globalPool() {
	x := b.call.In[0]
	args := b.poolArgs(x)
	args.share = C.float(1 / (float64(x.Shape[1]) * float64(x.Shape[2])))
	if b.call.Pass == kernels.Forward {
		grid := dim{ceil(int64(x.Shape[3]), mergeLanes), min(int64(x.Shape[0]), maxImages), 1}
		addStep(b, "pool", "globalpool_forward"+suffix(x.DType), grid, mergeBlock, 0, args)
	} else if !b.call.Skips(0) {
		b.pixels("globalpool_backward", x.DType, args, x.Shape)
	}
}

// adaptivePool is the mean of each of the windows that an image is cut into. Its output lies channel by channel.
func (b *builder) adaptivePool(op kernels.AdaptiveAvgPool) {
	x := b.call.In[0]
	args := b.poolArgs(x)
	args.oh, args.ow = C.int(op.OutH), C.int(op.OutW)
	if b.call.Pass == kernels.Forward {
		addPlaces(b, "adaptivepool_forward"+suffix(x.DType), args, kernels.Shape{x.Shape[0], x.Shape[3], op.OutH, op.OutW}, 1)
	} else if !b.call.Skips(0) {
		addPlaces(b, "adaptivepool_backward"+suffix(x.DType), args, x.Shape, 1)
	}
}

// upsample repeats pixels.
func (b *builder) upsample(op kernels.Upsample) {
	x := b.call.In[0]
	y, _ := op.Infer(b.call.In)
	args := b.poolArgs(x)
	args.oh, args.ow, args.kh, args.kw = C.int(y.Shape[1]), C.int(y.Shape[2]), C.int(op.Factor), C.int(op.Factor)
	if b.call.Pass == kernels.Forward {
		b.pixels("upsample_forward", x.DType, args, y.Shape)
	} else if !b.call.Skips(0) {
		b.pixels("upsample_backward", x.DType, args, x.Shape)
	}
}
