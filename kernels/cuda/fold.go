//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

// leastReuse is how often a kernel looks at a pixel, on the average, where a folded copy of the image is worth writing.
const leastReuse = 2

// folded returns the convolution that computes the same over a folded image. A pixel of it holds all pixels of a stride along w, each
// with zero channels after it that make a pixel whole vectors of 16 bytes. A convolution of 3 channels with 7 taps and stride 2 becomes
// one of 8 channels with 4 taps and stride 1. The result pixel is the number of channels of an unfolded pixel, with the zero channels;
// 0: nothing is gained. A dilated kernel along w keeps its taps and its stride.
func (c convolution) folded() (f convolution, pixel int64) {
	vector := wide(c.dtype.Stored())
	if c.groups > 1 || c.channels%vector == 0 {
		return c, 0
	}
	f = c
	if c.w.dilation == 1 {
		whole := vector / gcd(vector, c.w.stride)
		pixel = ceil(c.channels, whole) * whole
		f.channels = c.w.stride * pixel
		taps := ceil(c.w.kernel, c.w.stride)
		f.w = axis{in: c.w.out - 1 + taps, out: c.w.out, kernel: taps, stride: 1, dilation: 1}
	} else {
		pixel = ceil(c.channels, vector) * vector
		f.channels = pixel
	}
	reused := c.h.kernel*c.w.kernel >= leastReuse*c.h.stride*c.w.stride
	if f.check() != nil || !reused && !c.liesAs(f, pixel) {
		return c, 0
	}
	return f, pixel
}

// liesAs reports whether the image, as it is, is that of the folded convolution.
func (c convolution) liesAs(f convolution, pixel int64) bool {
	return pixel == c.channels && f.w.pad == c.w.pad && f.w.in*f.channels == c.w.in*c.channels
}

// padded reports whether the folded kernel has weights that stand for none.
func (m *multiplication) padded() bool {
	return m.fold.pixel != 0 && (m.fold.pixel != m.fold.channels || int64(m.fold.taps*m.fold.pixel) != m.w.kernel*m.channels)
}

// foldImage takes the folded convolution in place of the given one where that gains, and returns its image.
func (m *multiplication) foldImage(image C.u64) C.u64 {
	c := m.convolution
	f, pixel := c.folded()
	if pixel == 0 {
		return image
	}
	m.convolution = f
	m.fold = C.struct_fold{pixel: C.int(pixel), channels: C.int(c.channels), taps: C.int(c.w.kernel)}
	if c.liesAs(f, pixel) {
		return image
	}
	width := f.w.in * f.channels
	n := f.n * f.h.in * width
	args := C.struct_fold_args{
		in: image, out: m.reserve(n * c.dtype.Size()), n: C.i64(n),
		w: C.int(c.w.in), c: C.int(c.channels), width: C.int(width), pixel: C.int(pixel), pad: C.int(c.w.pad - f.w.pad),
	}
	addStream(m.builder, "pack", "fold_image"+suffix(c.dtype.Stored()), n, wide(c.dtype.Stored()), args)
	return args.out
}
