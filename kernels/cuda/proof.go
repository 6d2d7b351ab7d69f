//go:build cuda && linux && amd64

package cuda

// #include "args.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda"
)

// ErrWrong is returned for an algorithm that does not compute what the op's definition says.
var ErrWrong = errors.New("it computes wrongly")

// A proof adds up so many terms at most, on a GPU and on the emulated one, of so many outputs at least and at most. A
// thread adds up one slice.
const (
	proofTerms         = 1 << 30
	emulatedProofTerms = 1 << 18
	leastSamples       = 64
	mostSamples        = 1 << 16
	proofSlice         = 1 << 12
)

// proof compares what an algorithm computes from random data with the naive sums. It compares all outputs. If that would take more than
// the library's terms, it compares a sample from all over the result, with its first and its last element, and the edges. Operands that
// the algorithm only reads, and what lies between operands, must be what they were. Errors: ErrWrong with what differs; others say why
// the algorithm could not be tried.
func (l *Library) proof(call kernels.Call, a algorithm) error {
	return l.try(call, a, func(t *trial) error {
		e, err := t.expect()
		if err != nil {
			return err
		}
		if err := t.issue(t.launch); err != nil {
			return err
		}
		if err := t.compare(e); err != nil {
			return err
		}
		return t.kept()
	})
}

// sampled returns which of n outputs are looked at: one somewhere in each of equal parts, the first and the last.
func sampled(n, terms, most int64) []int64 {
	count := min(n, max(leastSamples, min(mostSamples, most/terms)))
	at := make([]int64, count)
	r := rand.New(rand.NewPCG(uint64(n), uint64(terms)))
	for i := range count {
		from, to := i*n/count, (i+1)*n/count // no overflow: 2^16 samples of less than 2^47 outputs
		at[i] = from + r.Int64N(to-from)
	}
	at[0], at[count-1] = 0, n-1
	return at
}

// edgeSamples is how many rows of Y, or channels of the weights' gradient, a proof looks at the edges of: eight rows of each alignment.
const edgeSamples = 8 * C.EDGE_ALIGNMENT

// edges are outputs that products of their own compute in alignedRows and alignedBlocks, and that are few among many. They are the first and the last
// columns of rows of Y, or rows of the weights' gradient. Each element of DX has both products in it.
func (c convolution) edges(p kernels.Pass) (at []int64) {
	rows, rowStride, columnStride := c.outputPixels(), c.out, int64(1)
	switch p {
	case kernels.BackwardInput:
		return nil
	case kernels.BackwardParams:
		rows, rowStride, columnStride = c.channels, 1, c.channels
	}
	for i := range int64(edgeSamples) {
		row := min(i*rows/edgeSamples/C.EDGE_ALIGNMENT*C.EDGE_ALIGNMENT+i%C.EDGE_ALIGNMENT, rows-1)
		for column := range int64(C.EDGE_ALIGNMENT) {
			at = append(at, row*rowStride+column*columnStride, row*rowStride+(c.out-1-column)*columnStride)
		}
	}
	return at
}

// expectation holds the right values of outputs.
type expectation struct {
	at        []int64
	positions deviceAddress // at, on the device
	want      []float64
	allowed   []float64 // how far off they may be
	values    deviceAddress
}

// expect computes what the outputs should be, from what the operands hold now.
func (t *trial) expect() (*expectation, error) {
	args, out := t.bound.definitionArgs()
	terms := int64(args.terms)
	e := &expectation{at: sampled(int64(args.samples), terms, t.lib.terms)}
	if t.algorithm == cublasRows {
		e.at = append(e.at, definition(t.call).edges(t.call.Pass)...)
	}
	n := int64(len(e.at))
	slice := max(proofSlice, ceil(terms, maxGrid[1]))
	slices := ceil(terms, slice)
	base, err := t.allocate(8 * n * (2 + 2*slices))
	if err != nil {
		return nil, err
	}
	e.positions, e.values = base, base+deviceAddress(8*n)
	if err := upload(e.positions, e.at); err != nil {
		return nil, err
	}
	old := make([]float64, n)
	if args.add != 0 {
		if old, err = t.values(e); err != nil {
			return nil, err
		}
	}
	args.at, args.samples, args.slice, args.out = e.positions, C.i64(n), C.i64(slice), e.values+deviceAddress(8*n)
	sums := make([]float64, 2*n*slices)
	in := definition(t.call).dtype
	if err := t.run(func(b *builder) { addEach(b, "proof_sums"+suffix(in), n, slices, args) }); err != nil {
		return nil, err
	}
	if err := download(sums, args.out); err != nil {
		return nil, err
	}
	for i, sum := range old {
		squares := sum * sum
		for s := range slices {
			at := 2 * (s*n + int64(i))
			sum, squares = sum+sums[at], squares+sums[at+1]
		}
		e.want = append(e.want, sum)
		far := allowed(sum, math.Sqrt(squares), float64(terms), in, typeOf(t.call, out))
		if in == kernels.TF32 && t.algorithm != ours {
			far += vague(sum, math.Sqrt(squares))
		}
		e.allowed = append(e.allowed, far)
	}
	return e, nil
}

// allowed is how far a result of type out may be from the exact sum of so many terms, which are products of type in and have the norm
// given. Terms of random signs add up to about their norm, and so do partial sums. Float32 rounds each of them to 2^-24 of itself,
// whatever the order, and the errors have random signs, too. Tensor cores cut off rather than round, at every 8th term at least. A
// result in bfloat16 is rounded once more. Factors cut to the 11 bits of TF32, where they should be float32 or rounded, are outside
// for sums of up to some 100,000 terms.
func allowed(sum, norm, terms float64, in, out kernels.DType) float64 {
	roundings := 16 * math.Sqrt(terms)
	if in != kernels.Float32 {
		roundings += terms / 8
	}
	far := 0x1p-24 * roundings * norm
	if out == kernels.BFloat16 {
		far += 0x1p-8 * math.Abs(sum)
	}
	return far
}

// vague is how much further off a vendor's product in TF32 may be. The rounding of factors in its libraries is not documented,
// and where they find no such kernel they multiply in float32. Each of both factors is off by less than 2^-10 of itself, all of
// them perhaps in one direction.
func vague(sum, norm float64) float64 { return 0x1p-9 * (math.Abs(sum) + norm) }

// values returns the values of the looked-at outputs.
func (t *trial) values(e *expectation) ([]float64, error) {
	_, out := t.bound.definitionArgs()
	args := C.struct_sample_args{in: t.bound.address[out], at: e.positions, out: e.values, n: C.i64(len(e.at))}
	if err := t.run(func(b *builder) {
		addEach(b, "proof_values"+suffix(typeOf(t.call, out)), int64(len(e.at)), 1, args)
	}); err != nil {
		return nil, err
	}
	got := make([]float64, len(e.at))
	return got, download(got, e.values)
}

// compare looks at the outputs. The error names the one that is furthest off.
func (t *trial) compare(e *expectation) error {
	got, err := t.values(e)
	if err != nil {
		return err
	}
	wrong, worst, most := 0, 0, 0.0
	for i, want := range e.want {
		off := math.Abs(got[i]-want) / e.allowed[i]
		if got[i] == want || off <= 1 {
			continue
		}
		wrong++
		if math.IsNaN(off) {
			off = math.Inf(1)
		}
		if off > most {
			worst, most = i, off
		}
	}
	if wrong == 0 {
		return nil
	}
	_, out := t.bound.definitionArgs()
	return fmt.Errorf("%w: %d of %d outputs differ, %v[%d] is %.9g instead of %.9g", ErrWrong, wrong, len(e.at), out, e.at[worst], got[worst], e.want[worst])
}

// kept makes sure that the algorithm wrote its outputs and workspace and nothing else.
func (t *trial) kept() error {
	count, err := t.allocate(4)
	if err != nil {
		return err
	}
	for i, p := range t.places {
		args := C.struct_draw_args{in: p.at, seed: C.u64(i), changed: count, n: C.i64(p.elements())}
		if p.use.Write {
			args.first = C.i64(p.use.Bytes / p.dtype.Size())
		}
		if err := upload(count, []int32{0}); err != nil {
			return err
		}
		if err := t.run(func(b *builder) { addEach(b, "proof_kept"+suffix(p.dtype), int64(args.n-args.first), 1, args) }); err != nil {
			return err
		}
		changed := make([]int32, 1)
		if err := download(changed, count); err != nil {
			return err
		}
		if changed[0] == 0 {
			continue
		}
		if p.use.Write {
			return fmt.Errorf("%w: it writes behind %v", ErrWrong, p.use.Operand)
		}
		return fmt.Errorf("%w: it changes %v, which it should only read, or what lies behind it", ErrWrong, p.use.Operand)
	}
	return nil
}

// place is an operand of a trial in memory, with a fence behind it.
type place struct {
	use   kernels.Use
	dtype kernels.DType
	at    deviceAddress
	bytes int64 // with the fence
}

func (p place) elements() int64 { return p.bytes / p.dtype.Size() }

// trial is one algorithm on memory of its own, beside the arena, aligned as the driver aligns.
type trial struct {
	lib       *Library
	call      kernels.Call
	algorithm algorithm
	bound     *builder
	launch    cuda.Launch
	stream    cu.Stream
	places    []place
	owned     []cu.DevicePtr
}

// try binds a call by an algorithm to memory full of random data, with NaNs where it writes without reading, and lets f run
// it. The context is current in f.
func (l *Library) try(call kernels.Call, a algorithm, f func(*trial) error) error {
	b, err := l.buildAs(call, nil, a)
	if err != nil {
		return err
	}
	return l.device.Run(func() (err error) {
		t := &trial{lib: l, call: call, algorithm: a}
		defer func() { err = errors.Join(err, t.free()) }()
		if t.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return err
		}
		if err := t.place(call.Uses(kernels.Operands{}, b.used)); err != nil {
			return err
		}
		if t.bound, err = l.buildAs(call, t.addresses(), a); err != nil {
			return err
		}
		if t.launch, err = l.launch(call.Op.Kind(), t.bound); err != nil {
			return err
		}
		return f(t)
	})
}

// apart is how cuMemAlloc aligns, in bytes, and how wide a fence is at least.
const apart = 256

// place allocates and fills operands.
func (t *trial) place(uses []kernels.Use) error {
	total := int64(0)
	for _, u := range uses {
		p := place{use: u, dtype: typeOf(t.call, u.Operand), at: deviceAddress(total), bytes: (ceil(u.Bytes, apart) + 1) * apart}
		t.places = append(t.places, p)
		total += p.bytes
	}
	base, err := t.allocate(total)
	if err != nil {
		return err
	}
	for i := range t.places {
		t.places[i].at += base
	}
	if err := t.run(t.fill); err != nil {
		return err
	}
	for _, p := range t.places {
		if p.use.Write && !p.use.Read && p.use.Bytes > 0 {
			if err := cu.MemsetD8(cu.DevicePtr(p.at), 0xff, p.use.Bytes); err != nil {
				return err
			}
		}
	}
	return cu.Synchronize()
}

func (t *trial) fill(b *builder) {
	for i, p := range t.places {
		addEach(b, "proof_fill"+suffix(p.dtype), p.elements(), 1, C.struct_draw_args{in: p.at, seed: C.u64(i), n: C.i64(p.elements())})
	}
}

func (t *trial) addresses() addresses {
	all := addresses{}
	for _, p := range t.places {
		all[p.use.Operand] = p.at
	}
	return all
}

// allocate returns memory that free gives back.
func (t *trial) allocate(bytes int64) (deviceAddress, error) {
	p, err := cu.MemAlloc(bytes)
	if err != nil {
		return 0, fmt.Errorf("%d bytes to try it in: %w", bytes, err)
	}
	t.owned = append(t.owned, p)
	return deviceAddress(p), nil
}

func (t *trial) free() (err error) {
	for _, p := range t.owned {
		err = errors.Join(err, cu.MemFree(p))
	}
	if t.stream != (cu.Stream{}) {
		err = errors.Join(err, t.stream.Destroy())
	}
	return err
}

// run runs kernels to their end.
func (t *trial) run(add func(*builder)) error {
	b := &builder{lib: t.lib, call: t.call}
	add(b)
	if b.err != nil {
		return b.err
	}
	launch, err := t.lib.launch("proof", b)
	if err != nil {
		return err
	}
	return t.issue(launch)
}

// issue runs a launch to its end.
func (t *trial) issue(l cuda.Launch) error {
	return errors.Join(l.Issue(t.stream), t.stream.Synchronize())
}

// upload and download copy between the host and the device, and wait.
func upload[T any](to deviceAddress, from []T) error {
	bytes := int64(len(from)) * int64(unsafe.Sizeof(from[0]))
	return errors.Join(cu.MemcpyHtoD(cu.DevicePtr(to), unsafe.Pointer(unsafe.SliceData(from)), bytes), cu.Synchronize())
}

func download[T any](to []T, from deviceAddress) error {
	return cu.MemcpyDtoH(unsafe.Pointer(unsafe.SliceData(to)), cu.DevicePtr(from), int64(len(to))*int64(unsafe.Sizeof(to[0])))
}

// deviceAddress is the type of kernels' addresses.
type deviceAddress = C.u64
