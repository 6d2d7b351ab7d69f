package data

import "math/rand/v2"

// mask is a grey picture with a border of one empty pixel, so that bilinear sampling fades to zero.
type mask struct {
	w, h int // border included, at least 2
	pix  []uint8
}

func newMask(w, h int) mask {
	return mask{w + 2, h + 2, make([]uint8, (w+2)*(h+2))}
}

func (m *mask) set(x, y int, v uint8) { m.pix[(y+1)*m.w+x+1] = v }

// Coordinates are fixed-point numbers with 16 fractional bits: exact on every platform, and fast.
const (
	one  = 1 << 16
	full = 255 << 16 // the value of a full mask pixel as returned by at
)

// at samples the mask between its pixel centers; u and v are relative to the center of pixel (0, 0) of the
// bordered picture. The result is 0 to full.
func (m *mask) at(u, v int32) int32 {
	x, y := int(u>>16), int(v>>16)
	if uint(x) >= uint(m.w-1) || uint(y) >= uint(m.h-1) {
		return 0
	}
	fx, fy := u>>8&255, v>>8&255
	top := m.pix[y*m.w+x:][:m.w+2]
	a, b, c, d := int32(top[0]), int32(top[1]), int32(top[m.w]), int32(top[m.w+1])
	upper := a<<8 + (b-a)*fx
	lower := c<<8 + (d-c)*fx
	return upper<<8 + (lower-upper)*fy
}

// affine takes pixel (x, y) of an image to the mask position (u0 + x ux + y uy, v0 + x vx + y vy).
type affine struct {
	u0, ux, uy int32
	v0, vx, vy int32
}

// jitter bounds a random distortion.
type jitter struct {
	grow  float64 // largest relative change of the size, up or down
	turn  float64 // largest rotation, as the slope that a horizontal line gets
	slant float64 // largest horizontal shear
	shift [2]float64
}

// pose is one distortion: the inverse map, from the image to the picture.
type pose struct {
	scale, turn, slant, dx, dy float64
}

func (j jitter) draw(r *rand.PCG) pose {
	return pose{
		scale: 1 + uniform(r, -j.grow, j.grow),
		turn:  uniform(r, -j.turn, j.turn),
		slant: uniform(r, -j.slant, j.slant),
		dx:    uniform(r, -j.shift[0], j.shift[0]),
		dy:    uniform(r, -j.shift[1], j.shift[1]),
	}
}

// place returns the map that shows a picture in a square image. Position (cu, cv) of the picture appears at the
// image's center, moved by the pose's shift (in image sides). One image pixel spans zoom picture pixels,
// distorted by the pose.
func place(image int, zoom, cu, cv float64, p pose) affine {
	s := float64(zoom / p.scale)
	ux, uy := s, float64(s*(p.turn+p.slant))
	vx, vy := float64(-s*p.turn), s
	side := float64(image)
	x0 := (side-1)/2 + float64(p.dx*side) // image position of (cu, cv)
	y0 := (side-1)/2 + float64(p.dy*side)
	return affine{
		u0: toFixed(cu - float64(ux*x0) - float64(uy*y0)), ux: toFixed(ux), uy: toFixed(uy),
		v0: toFixed(cv - float64(vx*x0) - float64(vy*y0)), vx: toFixed(vx), vy: toFixed(vy),
	}
}

func toFixed(x float64) int32 { return int32(x * one) }

// tone turns a sample of a mask into a pixel value: base + gain * sample/full + noise.
type tone struct {
	base, gain float32
	noise      float32 // standard deviation
}

// noiseUnit is the standard deviation of the sum of two bytes, each uniform over 0..255: sqrt(2 (256²-1)/12).
const noiseUnit = 104.50837

// draw fills an image of size x size pixels, its grey value repeated over the channels.
func (m *mask) draw(dst []float32, size, channels int, a affine, t tone, r *rand.PCG) {
	gain, noise := t.gain/full, t.noise/noiseUnit
	var random uint64
	i := 0
	for y := range int32(size) {
		u, v := a.u0+y*a.uy, a.v0+y*a.vy
		for x := range int32(size) {
			value := t.base + float32(gain*float32(m.at(u, v)))
			if noise != 0 {
				if x&3 == 0 {
					random = r.Uint64()
				}
				value += float32(noise * float32(int(random&255)+int(random>>8&255)-255))
				random >>= 16
			}
			for c := range channels {
				dst[i+c] = value
			}
			i += channels
			u, v = u+a.ux, v+a.vx
		}
	}
}
