package data

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/units"
)

const (
	npyMagic     = "\x93NUMPY"
	maxNPYBytes  = 1 << 36
	maxNPYHeader = 1 << 16
)

// npyType is a type of elements that is read.
type npyType struct {
	bytes  int
	floats bool
	value  func(b []byte) float64
}

var littleEndian = binary.LittleEndian

// npyTypes are the types by their descr. Integers beyond 2^53 are rounded.
var npyTypes = map[string]npyType{
	"<f4": {4, true, func(b []byte) float64 { return float64(math.Float32frombits(littleEndian.Uint32(b))) }},
	"<f8": {8, true, func(b []byte) float64 { return math.Float64frombits(littleEndian.Uint64(b)) }},
	"|i1": {1, false, func(b []byte) float64 { return float64(int8(b[0])) }},
	"|u1": {1, false, func(b []byte) float64 { return float64(b[0]) }},
	"<i2": {2, false, func(b []byte) float64 { return float64(int16(littleEndian.Uint16(b))) }},
	"<i4": {4, false, func(b []byte) float64 { return float64(int32(littleEndian.Uint32(b))) }},
	"<i8": {8, false, func(b []byte) float64 { return float64(int64(littleEndian.Uint64(b))) }},
}

// array is the content of a file in NumPy's format: elements in C order, as the file has them.
type array struct {
	file  string
	shape []int
	kind  npyType
	bytes []byte
}

// openNPY reads a file of NumPy's format 1.0 or 2.0.
func openNPY(file string) (a *array, err error) {
	f, size, err := openFile(file, maxNPYBytes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // of a file that was read
	err = reading(f, file, func(r io.Reader) error {
		a, err = parseNPY(r, size)
		return err
	})
	if err == nil {
		a.file = file
	}
	return a, err
}

// parseNPY reads a file of so many bytes. It allocates no more than the file has. Errors: ErrCorrupt, ErrTruncated.
func parseNPY(file io.Reader, size int64) (*array, error) {
	r := bufio.NewReader(file)
	header, read, err := npyHeader(r)
	if err != nil {
		return nil, err
	}
	a, err := parseNPYHeader(header)
	if err != nil {
		return nil, err
	}
	want, there := int64(a.kind.bytes), size-read
	for _, n := range a.shape {
		if n > 0 && want > maxNPYBytes/int64(n) {
			return nil, fmt.Errorf("%w: shape %v; at most %s are read of such a file", ErrTooLarge, a.shape, units.Bytes(maxNPYBytes))
		}
		want *= int64(n)
	}
	switch {
	case there < want:
		return nil, fmt.Errorf("%w: shape %v takes %d bytes after the header, and there are %d", ErrTruncated, a.shape, want, there)
	case there > want:
		return nil, fmt.Errorf("%w: shape %v takes %d bytes after the header, and there are %d", ErrCorrupt, a.shape, want, there)
	}
	a.bytes = make([]byte, want)
	if _, err := io.ReadFull(r, a.bytes); err != nil {
		return nil, decodeError(err)
	}
	return a, nil
}

// npyHeader returns the dictionary that a file begins with, and how many bytes are ahead of the elements.
func npyHeader(r io.Reader) (header string, read int64, err error) {
	start := make([]byte, len(npyMagic)+2)
	if _, err := io.ReadFull(r, start); err != nil {
		return "", 0, fmt.Errorf("in the first %d bytes: %w", len(start), decodeError(err))
	}
	major, minor := start[len(npyMagic)], start[len(npyMagic)+1]
	switch {
	case string(start[:len(npyMagic)]) != npyMagic:
		return "", 0, fmt.Errorf(`%w: it starts with %q, a file of numpy.save with %q`, ErrCorrupt, start[:len(npyMagic)], npyMagic)
	case major != 1 && major != 2 || minor != 0:
		return "", 0, fmt.Errorf("%w: it is of NumPy's format %d.%d; 1.0 and 2.0 are read: write it with numpy.save", ErrCorrupt, major, minor)
	}
	length := make([]byte, 2*major)
	if _, err := io.ReadFull(r, length); err != nil {
		return "", 0, fmt.Errorf("in the header's length: %w", decodeError(err))
	}
	n := uint32(littleEndian.Uint16(length))
	if major == 2 {
		n = littleEndian.Uint32(length)
	}
	if n > maxNPYHeader {
		return "", 0, fmt.Errorf("%w: a header of %d bytes; at most %d are read", ErrTooLarge, n, maxNPYHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", 0, fmt.Errorf("in a header of %d bytes: %w", n, decodeError(err))
	}
	return string(text), int64(len(start) + len(length) + len(text)), nil
}

// npyEntry matches an entry at the beginning of the dictionary, with its name and its value.
var npyEntry = regexp.MustCompile(`^'(\w+)': *('[^']*'|True|False|\((?:\d+, *)*(?:\d+)?\)|\[.*\]) *(?:, *|$)`)

// parseNPYHeader reads the dictionary {'descr': ..., 'fortran_order': ..., 'shape': ...}.
func parseNPYHeader(header string) (*array, error) {
	inside, begins := strings.CutPrefix(strings.TrimSpace(header), "{")
	inside, ends := strings.CutSuffix(inside, "}")
	if !begins || !ends {
		return nil, fmt.Errorf("%w: header %.200q is no dictionary of Python", ErrCorrupt, header)
	}
	fields := map[string]string{}
	for inside = strings.TrimSpace(inside); inside != ""; {
		found := npyEntry.FindStringSubmatch(inside)
		if found == nil || fields[found[1]] != "" {
			return nil, fmt.Errorf("%w: header %.200q is not understood from %.100q on", ErrCorrupt, header, inside)
		}
		fields[found[1]], inside = found[2], inside[len(found[0]):]
	}
	for _, name := range []string{"descr", "fortran_order", "shape"} {
		if fields[name] == "" {
			return nil, fmt.Errorf("%w: header %.200q has no %s", ErrCorrupt, header, name)
		}
	}
	if len(fields) > 3 {
		return nil, fmt.Errorf("%w: header %.200q has more than descr, fortran_order and shape", ErrCorrupt, header)
	}
	return newArray(fields["descr"], fields["fortran_order"], fields["shape"])
}

// newArray returns the array that the fields of a header describe.
func newArray(descr, order, shape string) (*array, error) {
	kind, known := npyTypes[strings.Trim(descr, "'")]
	switch {
	case strings.HasPrefix(descr, "'|O"):
		return nil, fmt.Errorf("%w: descr is %s, pickled objects, which are never loaded: save numbers", ErrCorrupt, descr)
	case !known:
		return nil, fmt.Errorf("%w: descr is %.60s; little-endian float32, float64, int8, int16, int32, int64 and uint8 are read: convert it with astype", ErrCorrupt, descr)
	case order != "False":
		return nil, fmt.Errorf("%w: fortran_order is %s: save it in C order, with numpy.ascontiguousarray", ErrCorrupt, order)
	case !strings.HasPrefix(shape, "("):
		return nil, fmt.Errorf("%w: shape is %.60s, no tuple", ErrCorrupt, shape)
	}
	a := &array{kind: kind}
	for _, text := range strings.FieldsFunc(shape, func(r rune) bool { return !strings.ContainsRune("0123456789", r) }) {
		n, err := strconv.ParseInt(text, 10, 40)
		if err != nil {
			return nil, fmt.Errorf("%w: shape is %.60s", ErrTooLarge, shape)
		}
		a.shape = append(a.shape, int(n))
	}
	return a, nil
}

// samples returns the extent of the first axis; 0 of a single number.
func (a *array) samples() int64 {
	if len(a.shape) == 0 {
		return 0
	}
	return int64(a.shape[0])
}

// sample returns the extent of all other axes.
func (a *array) sample() int {
	n := 1
	for _, extent := range a.shape[min(1, len(a.shape)):] {
		n *= extent
	}
	return n
}

// at returns an element.
func (a *array) at(i int64) float64 {
	return a.kind.value(a.bytes[i*int64(a.kind.bytes):])
}

// checkFinite refuses elements that are not finite as float32. Integers are.
func (a *array) checkFinite() error {
	if !a.kind.floats {
		return nil
	}
	for i := range int64(len(a.bytes) / a.kind.bytes) {
		if v := a.at(i); !(math.Abs(v) <= math.MaxFloat32) {
			return fmt.Errorf("%s: %w: element %d of sample %d is %v, no finite float32", a.file, ErrCorrupt, i%int64(a.sample()), i/int64(a.sample()), v)
		}
	}
	return nil
}

// like refuses an array whose samples or elements are not those of another one.
func (a *array) like(b *array) error {
	if slices.Equal(a.shape[1:], b.shape[1:]) && a.kind.floats == b.kind.floats {
		return nil
	}
	return fmt.Errorf("%s: %w: shape %v of %s; %s has %v of %s", a.file, ErrCorrupt, a.shape, a.numbers(), b.file, b.shape, b.numbers())
}

func (a *array) numbers() string {
	if a.kind.floats {
		return "floats"
	}
	return "integers"
}
