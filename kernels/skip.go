package kernels

// The ops of models whose skips pass over layers: an activation holds several tensors, packed as one.

// Pack concatenates its inputs, of any shapes with the same N, sample by sample. Y is N,1,1,K, where K is the number of
// elements of one sample of all inputs.
type Pack struct{}

// Slice takes a part of each sample. X[0], of any shape, is seen as N*Rows equal rows (0 means 1 row a sample). Y,
// N,H,W,C, takes H*W*C/Rows elements of each row from element From on. With one row Slice is the inverse of Pack. With
// H*W rows it takes channels out of an image. With H/2 rows, each of two rows of pixels, it takes every other row of
// pixels.
//
// Backward writes DY to its place in DX and zeros to the rest. If it accumulates, it adds DY to its place and leaves
// the rest. So among several slices of one tensor, only the first to be differentiated writes the whole gradient.
type Slice struct {
	Rows    int
	From    int
	H, W, C int
}

// Upsample repeats each pixel Factor times along both axes of the image: the nearest neighbour.
type Upsample struct{ Factor int }

func (Pack) Kind() string     { return "pack" }
func (Slice) Kind() string    { return "slice" }
func (Upsample) Kind() string { return "upsample" }

func (Pack) Needs() Needs     { return Needs{} }
func (Slice) Needs() Needs    { return Needs{} }
func (Upsample) Needs() Needs { return Needs{} }

func (Pack) Split() bool     { return false }
func (Slice) Split() bool    { return false }
func (Upsample) Split() bool { return false }

func (Pack) Alias(p Pass, out, in Operand) bool     { return never(p, out, in) }
func (Slice) Alias(p Pass, out, in Operand) bool    { return never(p, out, in) }
func (Upsample) Alias(p Pass, out, in Operand) bool { return never(p, out, in) }

func (Pack) Params([]Desc) []Param     { return nil }
func (Slice) Params([]Desc) []Param    { return nil }
func (Upsample) Params([]Desc) []Param { return nil }

func (Pack) Saved([]Desc) []Desc     { return nil }
func (Slice) Saved([]Desc) []Desc    { return nil }
func (Upsample) Saved([]Desc) []Desc { return nil }

// Infer implements Op.
func (p Pack) Infer(in []Desc) (Desc, error) {
	if len(in) < 1 {
		return Desc{}, bad(p.Kind(), "X", "no inputs")
	}
	sum := int64(0)
	for i, d := range in {
		if err := tensor(p.Kind(), i, d); err != nil {
			return Desc{}, err
		}
		if d.Shape[0] != in[0].Shape[0] || d.DType != in[0].DType {
			return Desc{}, bad(p.Kind(), "X", "input %d is %v, input 0 is %v: want as many samples of the same type", i, d, in[0])
		}
		if sum += sample(d); sum > MaxExtent {
			return Desc{}, bad(p.Kind(), "X", "a sample of inputs 0 to %d has more than %d elements", i, MaxExtent)
		}
	}
	return output(p.Kind(), in[0].DType, in[0].Shape[0], 1, 1, int(sum))
}

// Defaults returns the op with zero Rows replaced by 1.
func (s Slice) Defaults() Slice {
	s.Rows = max(s.Rows, 1)
	return s
}

// Infer implements Op.
func (s Slice) Infer(in []Desc) (Desc, error) {
	if len(in) != 1 {
		return Desc{}, bad(s.Kind(), "X", "want one input, have %d", len(in))
	}
	if err := tensor(s.Kind(), 0, in[0]); err != nil {
		return Desc{}, err
	}
	y, err := output(s.Kind(), in[0].DType, in[0].Shape[0], s.H, s.W, s.C)
	if err != nil {
		return Desc{}, err
	}
	if s.Rows < 0 || s.Rows > MaxExtent {
		return Desc{}, bad(s.Kind(), "Rows", "%d is not a number of rows", s.Rows)
	}
	rows, have, want := int64(s.Defaults().Rows), sample(in[0]), sample(y)
	switch {
	case have%rows != 0 || want%rows != 0:
		return Desc{}, bad(s.Kind(), "Rows", "%d rows do not divide samples of %d and %d elements", rows, have, want)
	case have/rows > MaxExtent:
		return Desc{}, bad(s.Kind(), "Rows", "a row of %d elements is longer than %d", have/rows, MaxExtent)
	case s.From < 0 || want > have || int64(s.From) > (have-want)/rows:
		return Desc{}, bad(s.Kind(), "From", "a row of %d elements has no %d from %d on", have/rows, want/rows, s.From)
	}
	return y, nil
}

// Infer implements Op.
func (u Upsample) Infer(in []Desc) (Desc, error) {
	if err := oneImage(u.Kind(), in); err != nil {
		return Desc{}, err
	}
	s := in[0].Shape
	if u.Factor < 1 || u.Factor > MaxExtent/max(s[1], s[2]) {
		return Desc{}, bad(u.Kind(), "Factor", "%d times %dx%d is not the size of an image", u.Factor, s[1], s[2])
	}
	return output(u.Kind(), in[0].DType, s[0], u.Factor*s[1], u.Factor*s[2], s[3])
}
