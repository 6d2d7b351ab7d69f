package data

import "image"

// This file decodes the colors of a JPEG as libjpeg does. When weights were trained, most pictures were decoded by libjpeg. Chroma that has
// fewer pixels than luma is interpolated (its "fancy upsampling", jdsample.c), where package image repeats it. Colors are formed in 16 bits
// of fraction (jdcolor.c).

// plane is the chroma of a picture, w pixels wide and h high, each of which stands for sx times sy pixels of it.
type plane struct {
	pix          []uint8
	stride, w, h int
	sx, sy       int
}

// subsampling lists how many pixels a pixel of chroma stands for, across and down.
var subsampling = map[image.YCbCrSubsampleRatio][2]int{
	image.YCbCrSubsampleRatio444: {1, 1}, image.YCbCrSubsampleRatio422: {2, 1}, image.YCbCrSubsampleRatio420: {2, 2},
	image.YCbCrSubsampleRatio440: {1, 2}, image.YCbCrSubsampleRatio411: {4, 1}, image.YCbCrSubsampleRatio410: {4, 2},
}

// rgb returns a window of a picture that begins at 0,0, in dst if that has room.
func rgb(dst *image.RGBA, img *image.YCbCr, window image.Rectangle) *image.RGBA {
	dst = room(dst, window)
	s := subsampling[img.SubsampleRatio]
	b := img.Bounds().Size()
	cb := plane{pix: img.Cb, stride: img.CStride, w: (b.X + s[0] - 1) / s[0], h: (b.Y + s[1] - 1) / s[1], sx: s[0], sy: s[1]}
	cr := cb
	cr.pix = img.Cr
	blue, red := make([]uint8, window.Dx()), make([]uint8, window.Dx())
	for y := window.Min.Y; y < window.Max.Y; y++ {
		cb.row(blue, window.Min.X, y)
		cr.row(red, window.Min.X, y)
		luma := img.Y[img.YOffset(window.Min.X, y):][:window.Dx()]
		line := dst.Pix[dst.PixOffset(window.Min.X, y):]
		for x, l := range luma {
			pixel((*[4]uint8)(line[4*x:]), int32(l), int32(blue[x])-128, int32(red[x])-128)
		}
	}
	return dst
}

// room returns an image of a window, in the memory of another one where that is large enough.
func room(img *image.RGBA, window image.Rectangle) *image.RGBA {
	stride := 4 * window.Dx()
	if n := stride * window.Dy(); img != nil && cap(img.Pix) >= n {
		return &image.RGBA{Pix: img.Pix[:n], Stride: stride, Rect: window}
	}
	return image.NewRGBA(window)
}

// pixel forms a pixel of luma and centered chroma: ITU-R BT.601 in 16 bits of fraction.
func pixel(dst *[4]uint8, y, cb, cr int32) {
	const half = 1 << 15
	dst[0] = clamped(y + (91881*cr+half)>>16)
	dst[1] = clamped(y + (-22554*cb-46802*cr+half)>>16)
	dst[2] = clamped(y + (116130*cb+half)>>16)
	dst[3] = 255
}

func clamped(v int32) uint8 { return uint8(max(0, min(v, 255))) }

// row writes the chroma of len(dst) pixels of row y of the picture, from x on.
//
// In each direction with half of the pixels, pixels of the picture between two pixels of chroma have 3/4 of the nearer one and 1/4
// of the other. Sums round up and down by turns, so that they do not drift. Other subsampling repeats, and so do planes of at most
// two pixels across.
func (p *plane) row(dst []uint8, x, y int) {
	near := p.line(y / p.sy)
	far, down := near, p.sy == 2 && p.sx <= 2
	if down {
		far = p.line(y/2 + 2*(y%2) - 1)
	}
	switch across := p.sx == 2 && p.w > 2; {
	case across && down:
		p.across(dst, x, near, far, 8, 7, 4)
	case across:
		p.across(dst, x, near, near, 4, 8, 4)
	case down && p.sx == 1:
		for i := range dst {
			dst[i] = uint8((3*int(near[x+i]) + int(far[x+i]) + 1 + y%2) >> 2)
		}
	default:
		for i := range dst {
			dst[i] = near[(x+i)/p.sx]
		}
	}
}

// across interpolates between the columns of two rows, of which the near one counts three times; even and odd pixels round by what
// they are given.
func (p *plane) across(dst []uint8, x int, near, far []uint8, even, odd int, shift uint) {
	for i := range dst {
		at := (x + i) / 2
		next, round := at-1, even
		if (x+i)%2 == 1 {
			next, round = at+1, odd
		}
		next = max(0, min(next, p.w-1))
		dst[i] = uint8((3*(3*int(near[at])+int(far[at])) + 3*int(near[next]) + int(far[next]) + round) >> shift)
	}
}

// line returns a row of the plane, the nearest one for those beyond.
func (p *plane) line(y int) []uint8 {
	return p.pix[max(0, min(y, p.h-1))*p.stride:][:p.w]
}
