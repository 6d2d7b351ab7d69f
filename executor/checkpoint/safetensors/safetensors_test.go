package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// assemble puts a file together from its three parts.
func assemble(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func open(b []byte) (*File, error) { return New("a.safetensors", bytes.NewReader(b), int64(len(b))) }

func raw(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

// TestKnownBytes: a file put together by hand is read as the format says.
func TestKnownBytes(t *testing.T) {
	t.Parallel()
	f, err := open(assemble(`{"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},"__metadata__":{"made":"by \u0068and"},`+
		`"empty":{"dtype":"I64","shape":[0,7],"data_offsets":[8,8]},"a":{"shape":[2,1],"dtype":"F32","data_offsets":[0,8],"note":1}}   `,
		0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0, 1, 2, 255))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Tensors(), f.Metadata()); got != "[{a F32 [2 1]} {empty I64 [0 7]} {b U8 [3]}] map[made:by hand]" {
		t.Errorf("it holds %s", got)
	}
	for name, want := range map[string][]float32{"a": {1, -2}, "b": {1, 2, 255}, "empty": {}} {
		got := make([]float32, len(want))
		if err := f.Float32(name, got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %v, %v; want %v", name, got, err, want)
		}
	}
}

// drawn is a tensor with its bytes.
type drawn struct {
	Info
	bytes []byte
}

func drawTensors(t *rapid.T) []drawn {
	shape := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4)
	dtype := rapid.SampledFrom([]DType{F64, F32, F16, BF16, I64, I32, U8})
	names := rapid.SliceOfNDistinct(rapid.String(), 0, 8, rapid.ID).Draw(t, "names")
	var all []drawn
	for _, name := range names {
		x := drawn{Info: Info{Name: name, DType: dtype.Draw(t, "dtype"), Shape: shape.Draw(t, "shape")}}
		n, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		x.bytes = rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(t, "bytes")
		all = append(all, x)
	}
	return all
}

// TestRoundTrip: what is written is read, every tensor lies aligned to its elements, the same input gives the same bytes.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	cases := 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		all := drawTensors(t)
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, "metadata")
		file := write(t, metadata, all)
		if !bytes.Equal(file, write(t, metadata, all)) {
			t.Fatal("the same tensors gave other bytes")
		}
		f, err := open(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Metadata(); !maps.Equal(got, metadata) {
			t.Fatalf("metadata %q became %q", metadata, got)
		}
		if len(f.Tensors()) != len(all) {
			t.Fatalf("%d tensors became %d", len(all), len(f.Tensors()))
		}
		for _, x := range all {
			e := f.byName[x.Name]
			at := f.data + e.begin
			if e.DType != x.DType || !slices.Equal(e.Shape, x.Shape) || at%x.DType.Size() != 0 {
				t.Fatalf("%v became %v at %d", x.Info, e.Info, at)
			}
			if got := file[at : f.data+e.end]; !bytes.Equal(got, x.bytes) {
				t.Fatalf("%q: bytes %x became %x", x.Name, x.bytes, got)
			}
		}
	})
	want := 100
	if testing.Short() {
		want = 20 // rapid draws a fifth
	}
	if cases < want {
		t.Errorf("%d cases ran, want %d", cases, want)
	}
}

func write(t rapid.TB, metadata map[string]string, all []drawn) []byte {
	var tensors []Tensor
	for _, x := range all {
		tensors = append(tensors, Tensor{x.Info, raw(x.bytes)})
	}
	var b bytes.Buffer
	if err := Write(&b, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRefusedHeaders: each rule of the format, with an error that says what and where.
func TestRefusedHeaders(t *testing.T) {
	t.Parallel()
	a := func(fields string) string { return `{"a":{` + fields + `}}` }
	good := `"dtype":"U8","shape":[4],"data_offsets":[0,4]`
	two := func(offsets string) string {
		return `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":` + offsets + `}}`
	}
	cases := []struct{ header, want string }{
		{`[]`, "does not begin with '{'"},
		{` {}`, "does not begin with '{'"},
		{``, "does not begin with '{'"},
		{"{\"\xff\":1}", "not UTF-8"},
		{`{"a":`, "line 1, column 5: unexpected end"},
		{`{} {}`, "invalid character"},
		{`{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "max depth"},
		{`{"a":{` + good + `},"a":{` + good + `}}`, `field "a" occurs twice`},
		{`{"a":{` + good + `},"\u0061":{` + good + `}}`, `field "a" occurs twice`},
		{a(good + `,"dtype":"F32"`), `tensor "a": not a valid safetensors file: field "dtype" occurs twice`},
		{`{"a":7}`, `tensor "a"`},
		{`{"a":null}`, `tensor "a"`},
		{a(`"shape":[4],"data_offsets":[0,4]`), `field "dtype" is missing`},
		{a(`"dtype":"U8","data_offsets":[0,4]`), `field "shape" is missing`},
		{a(`"dtype":"U8","shape":[4]`), `field "data_offsets" is missing`},
		{a(`"dtype":4,"shape":[4],"data_offsets":[0,4]`), `field "dtype" is 4, which is not a string`},
		{a(`"dtype":"u8","shape":[4],"data_offsets":[0,4]`), `dtype is "u8", which is none of F64`},
		{a(`"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]`), `dtype is "F8_E4M3"`},
		{a(`"dtype":"U8","shape":4,"data_offsets":[0,4]`), `field "shape" is 4, which is not an array`},
		{a(`"dtype":"U8","shape":[-4],"data_offsets":[0,4]`), `shape[0] is -4`},
		{a(`"dtype":"U8","shape":[4.0],"data_offsets":[0,4]`), `shape[0] is 4.0`},
		{a(`"dtype":"U8","shape":["4"],"data_offsets":[0,4]`), `shape[0] is "4"`},
		{a(`"dtype":"U8","shape":[1,99999999999999999999],"data_offsets":[0,4]`), `shape[1] is 99999999999999999999`},
		{a(`"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,4]`), "too large"},
		{a(`"dtype":"U8","shape":[4611686018427387905],"data_offsets":[0,4]`), "too large"},
		{a(`"dtype":"U8","shape":[4],"data_offsets":[0]`), "data_offsets is [0]"},
		{a(`"dtype":"U8","shape":[4],"data_offsets":[0,2,4]`), "data_offsets is [0 2 4]"},
		{a(`"dtype":"U8","shape":[4],"data_offsets":[4,0]`), "data_offsets is [4 0]"},
		{a(`"dtype":"U8","shape":[4],"data_offsets":[-4,0]`), "data_offsets[0] is -4"},
		{a(`"dtype":"U8","shape":[4],"data_offsets":[0,3]`), "data_offsets is [0 3], 3 bytes, but U8 [4] takes 4"},
		{a(`"dtype":"F32","shape":[4],"data_offsets":[0,4]`), "4 bytes, but F32 [4] takes 16"},
		{a(`"dtype":"U8","shape":[5],"data_offsets":[0,5]`), "truncated: its tensors take 5 bytes, and 4 follow"},
		{a(`"dtype":"U8","shape":[3],"data_offsets":[0,3]`), "1 bytes follow the last tensor"},
		{`{}`, "4 bytes follow the last tensor"},
		{a(`"dtype":"U8","shape":[3],"data_offsets":[1,4]`), `tensor "a": not a valid safetensors file: data_offsets is [1 4]: bytes 0 to 1 belong to no tensor`},
		{two(`[0,2]`), `tensor "b": not a valid safetensors file: data_offsets is [0 2]: it overlaps tensor "a", which ends at 2`},
		{two(`[1,3]`), `it overlaps tensor "a"`},
		{two(`[3,5]`), "bytes 2 to 3 belong to no tensor"},
		{`{"__metadata__":7,"a":{` + good + `}}`, `"__metadata__" is 7`},
		{`{"__metadata__":{"x":7},"a":{` + good + `}}`, `__metadata__: field "x" is 7, which is not a string`},
		{`{"__metadata__":{"x":null},"a":{` + good + `}}`, `__metadata__: field "x"`},
		{`{"__metadata__":{"x":"1","x":"2"},"a":{` + good + `}}`, `field "x" occurs twice`},
	}
	for _, c := range cases {
		_, err := open(assemble(c.header, 1, 2, 3, 4))
		var e *Error
		if !errors.Is(err, ErrFormat) || !errors.As(err, &e) || e.File != "a.safetensors" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s:\n got %v\nwant %s", c.header, err, c.want)
		}
	}
	if _, err := open(assemble(a(good), 1, 2, 3, 4)); err != nil || len(cases) != 42 {
		t.Errorf("of %d cases, the one without a fault: %v", len(cases), err)
	}
}

// TestRefusedLengths: no length of a header makes the reader take memory for it that the file does not have.
func TestRefusedLengths(t *testing.T) {
	t.Parallel()
	for length, want := range map[uint64]string{
		3: "truncated: the header's length is 3, and 2 bytes follow", MaxHeader: "truncated",
		MaxHeader + 1: "more than 100000000", math.MaxInt64: "more than", math.MaxUint64: "more than",
	} {
		_, err := open(append(binary.LittleEndian.AppendUint64(nil, length), "{}"...))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("length %d: %v", length, err)
		}
	}
}

// TestTruncated: no beginning of a file passes for a file.
func TestTruncated(t *testing.T) {
	t.Parallel()
	file := write(t, map[string]string{"x": "y"}, []drawn{
		{Info{"a", F32, []int{3}}, make([]byte, 12)}, {Info{"b", U8, nil}, []byte{7}},
	})
	for n := range file {
		if _, err := open(file[:n]); !errors.Is(err, ErrFormat) {
			t.Errorf("its first %d bytes: %v", n, err)
		}
	}
	if _, err := open(append(file, 0)); !errors.Is(err, ErrFormat) {
		t.Errorf("with one more byte: %v", err)
	}
	if _, err := open(file); err != nil || len(file) < 100 {
		t.Errorf("the whole file of %d bytes: %v", len(file), err)
	}
}

// half is the meaning of binary16 by the standard's formula.
func half(h uint16) float64 {
	exponent, fraction := int(h>>10&0x1F), float64(h&0x3FF)/1024
	x := math.Ldexp(1+fraction, exponent-15)
	switch {
	case exponent == 0:
		x = math.Ldexp(fraction, -14)
	case exponent == 31 && fraction > 0:
		return math.NaN()
	case exponent == 31:
		x = math.Inf(1)
	}
	if h>>15 == 1 {
		return -x
	}
	return x
}

// TestEveryHalf: all numbers of 16 bits, in both formats, are the same numbers as float32.
func TestEveryHalf(t *testing.T) {
	t.Parallel()
	var b []byte
	for h := range 1 << 16 {
		b = binary.LittleEndian.AppendUint16(b, uint16(h))
	}
	got, brain := make([]float32, 1<<16), make([]float32, 1<<16)
	f, err := open(write(t, nil, []drawn{{Info{"f16", F16, []int{256, 256}}, b}, {Info{"bf16", BF16, []int{1 << 16}}, b}}))
	if err = errors.Join(err, f.Float32("f16", got), f.Float32("bf16", brain)); err != nil {
		t.Fatal(err)
	}
	for h := range 1 << 16 {
		want := half(uint16(h))
		if x := float64(got[h]); x != want && !(math.IsNaN(x) && math.IsNaN(want)) || math.Signbit(x) != (h>>15 == 1) {
			t.Fatalf("F16 %#04x is %g, want %g", h, x, want)
		}
		if bits := math.Float32bits(brain[h]); bits != uint32(h)<<16 {
			t.Fatalf("BF16 %#04x is %#08x", h, bits)
		}
	}
}

// TestNumbers: what float32 has is kept, F64 is rounded, and what it cannot hold is refused with its place.
func TestNumbers(t *testing.T) {
	t.Parallel()
	double := func(x float64) uint64 { return math.Float64bits(x) }
	whole := func(n int64) uint64 { return uint64(n) }
	cases := []struct {
		dtype DType
		bits  uint64
		want  float32
		err   string
	}{
		{F64, double(0.1), 0.1, ""},
		{F64, double(-1e-300), float32(math.Copysign(0, -1)), ""},
		{F64, double(math.Inf(-1)), float32(math.Inf(-1)), ""},
		{F64, double(1e39), 0, "element 1 is 1e+39, too large for float32"},
		{F64, double(-1e39), 0, "element 1 is -1e+39"},
		{I64, whole(-1 << 24), -1 << 24, ""},
		{I64, whole(math.MinInt64), math.MinInt64, ""},
		{I64, whole(1<<24 + 1), 0, "element 1 is 16777217, which is no float32"},
		{I64, whole(math.MaxInt64), 0, "element 1 is 9223372036854775807, which is no float32"},
		{I32, whole(-7), -7, ""},
		{I32, whole(math.MaxInt32), 0, "element 1 is 2147483647, which is no float32"},
	}
	for _, c := range cases {
		size := c.dtype.Size()
		data := append(make([]byte, size), binary.LittleEndian.AppendUint64(nil, c.bits)[:size]...)
		f, err := open(write(t, nil, []drawn{{Info{"x", c.dtype, []int{2}}, data}}))
		if err != nil {
			t.Fatal(err)
		}
		var got [2]float32
		err = f.Float32("x", got[:])
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), `a.safetensors: tensor "x": `+c.err) {
				t.Errorf("%s %#x: %v, want %s", c.dtype, c.bits, err, c.err)
			}
		} else if err != nil || math.Float32bits(got[1]) != math.Float32bits(c.want) {
			t.Errorf("%s %#x is %g, %v; want %g", c.dtype, c.bits, got[1], err, c.want)
		}
	}
	if len(cases) != 11 {
		t.Errorf("%d cases", len(cases))
	}
}

// TestLargeTensors: elements beyond one chunk of reading and writing arrive, and NaNs keep their bits.
func TestLargeTensors(t *testing.T) {
	t.Parallel()
	want := make([]float32, 3*chunk/4+5)
	for i := range want {
		want[i] = math.Float32frombits(uint32(i) * 2654435761)
	}
	var b bytes.Buffer
	err := Write(&b, nil, []Tensor{{Info{"x", F32, []int{len(want)}}, func(w io.Writer) error { return WriteFloat32(w, want) }}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, len(want))
	if err := f.Float32("x", got); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("element %d: %#x became %#x", i, math.Float32bits(want[i]), math.Float32bits(got[i]))
		}
	}
}

// TestReadErrors: questions that a file cannot answer.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	f, err := open(assemble(`{"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Float32("b", nil); !errors.Is(err, ErrNoTensor) {
		t.Errorf("a tensor that is not there: %v", err)
	}
	if err := f.Float32("a", make([]float32, 3)); err == nil || !strings.Contains(err.Error(), "its shape is [2 2], 4 elements, and 3 are asked for") {
		t.Errorf("another number of elements: %v", err)
	}
	if _, _, err := f.Last(3); err == nil {
		t.Error("a last tensor larger than allowed")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	// A file that became shorter after its header was read.
	long := assemble(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 1, 2)
	f, err = New("a.safetensors", bytes.NewReader(long), int64(len(long))+2)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Float32("a", make([]float32, 4)); !errors.Is(err, io.EOF) {
		t.Errorf("data that is gone: %v", err)
	}
}

// TestWriteErrors: nothing is written that no reader would take.
func TestWriteErrors(t *testing.T) {
	t.Parallel()
	one := func(name string, d DType, shape ...int) Tensor { return Tensor{Info{name, d, shape}, raw([]byte{1})} }
	broken := errors.New("broken")
	cases := []struct {
		want     string
		metadata map[string]string
		tensors  []Tensor
	}{
		{`tensor "a": the name is taken`, nil, []Tensor{one("a", U8), one("a", U8)}},
		{`tensor "__metadata__": the name is taken`, nil, []Tensor{one("__metadata__", U8)}},
		{"not UTF-8", nil, []Tensor{one("\xff", U8)}},
		{`metadata "a" is not UTF-8`, map[string]string{"a": "\xff"}, nil},
		{`tensor "a": dtype is "I8"`, nil, []Tensor{one("a", "I8")}},
		{`tensor "a": shape is [-1], with a negative extent`, nil, []Tensor{one("a", U8, -1)}},
		{`tensor "a": 1 bytes were written, its shape [2] takes 2`, nil, []Tensor{one("a", U8, 2)}},
		{`tensor "b": the file is too large`, nil, []Tensor{one("a", U8, 1<<62), one("b", U8, 1<<62)}},
		{`tensor "a": broken`, nil, []Tensor{{Info{"a", U8, nil}, func(io.Writer) error { return broken }}}},
	}
	for _, c := range cases {
		var b bytes.Buffer
		if err := Write(&b, c.metadata, c.tensors); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
		if _, err := open(b.Bytes()); err == nil {
			t.Errorf("%s: what was written is a file", c.want)
		}
	}
	if len(cases) != 9 {
		t.Errorf("%d cases", len(cases))
	}
}

// TestStreams: neither side holds the tensors; what is allocated does not grow with them.
func TestStreams(t *testing.T) {
	// Serial: it counts allocations.
	const n, tensors = 1 << 20, 8
	values := make([]float32, n)
	var list []Tensor
	for i := range tensors {
		list = append(list, Tensor{Info{fmt.Sprint(i), F32, []int{n}}, func(w io.Writer) error { return WriteFloat32(w, values) }})
	}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	before := allocated()
	if err := errors.Join(Write(out, nil, list), out.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range f.Tensors() {
		if err := f.Float32(x.Name, values); err != nil {
			t.Fatal(err)
		}
	}
	if got := allocated() - before; got > 3*chunk*tensors {
		t.Errorf("%d bytes were allocated for %d tensors of %d bytes", got, tensors, 4*n)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// FuzzRead: no bytes make the reader panic, and what it takes for a file it can write again.
func FuzzRead(f *testing.F) {
	f.Add(assemble(`{"a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},"__metadata__":{"x":"y"}}  `, 1, 2, 3, 4))
	f.Add(assemble(`{"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}}`, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(assemble(`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"a":{}}`, 0, 0, 0, 0, 0, 0, 0xF0, 0x7F))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := open(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("an error that is not of the format: %v", err)
			}
			return
		}
		var all []drawn
		total := in.data
		for _, x := range in.header.entries {
			data := b[in.data+x.begin : in.data+x.end]
			all = append(all, drawn{x.Info, data})
			total += int64(len(data))
			// It must not panic; whether the values have a float32 is theirs.
			_ = in.Float32(x.Name, make([]float32, int64(len(data))/x.DType.Size()))
		}
		if total != int64(len(b)) {
			t.Fatalf("header and tensors have %d bytes, the file %d", total, len(b))
		}
		again, err := open(write(t, in.Metadata(), all))
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Tensors()) != len(all) || !maps.Equal(again.Metadata(), in.Metadata()) {
			t.Fatalf("%v %q became %v %q", in.Tensors(), in.Metadata(), again.Tensors(), again.Metadata())
		}
	})
}

func BenchmarkFile(b *testing.B) {
	values := make([]float32, 8<<20)
	x := Tensor{Info{"x", F32, []int{len(values)}}, func(w io.Writer) error { return WriteFloat32(w, values) }}
	var file bytes.Buffer
	file.Grow(4*len(values) + 1000)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(4 << 23)
		for b.Loop() {
			file.Reset()
			if err := Write(&file, nil, []Tensor{x}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(4 << 23)
		for b.Loop() {
			f, err := open(file.Bytes())
			if err == nil {
				err = f.Float32("x", values)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
