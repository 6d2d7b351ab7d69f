package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// npyFile returns a file of NumPy's format 1.0 with a header and elements.
func npyFile(header string, elements ...any) []byte {
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	b = append(b, header...)
	for _, e := range elements {
		b, _ = binary.Append(b, binary.LittleEndian, e)
	}
	return b
}

// npyHeaderOf returns the header that NumPy writes.
func npyHeaderOf(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
}

// npyFolder writes files to a folder.
func npyFolder(t testing.TB, files map[string][]byte) string {
	t.Helper()
	path := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(path, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// Files that NumPy has written hold what it wrote: testdata/npy has an arange minus 3 of each type.
func TestNumPyFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/npy/*.npy")
	if err != nil || len(files) != len(npyTypes)+1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		a, err := openNPY(file)
		if err != nil {
			t.Fatal(err)
		}
		if want := []int{2, 3}; !slices.Equal(a.shape, want) {
			t.Errorf("%s: shape %v, want %v", file, a.shape, want)
		}
		for i := range int64(6) {
			want := float64(i - 3)
			if strings.Contains(file, "uint8") {
				want = float64(uint8(i - 3))
			}
			if a.at(i) != want {
				t.Errorf("%s: element %d is %v, want %v", file, i, a.at(i), want)
			}
		}
	}
}

// Samples are channels last, targets are as in the file, and the last fifth is held out.
func TestNumPyTargets(t *testing.T) {
	t.Parallel()
	var x, y []float32
	for i := range 6 * 2 * 2 * 2 {
		x = append(x, float32(i))
	}
	for i := range 12 {
		y = append(y, float32(i)/16)
	}
	path := npyFolder(t, map[string][]byte{"x.npy": npyFile(npyHeaderOf("<f4", "6, 2, 2, 2"), x), "y.npy": npyFile(npyHeaderOf("<f4", "6, 2"), y)})
	set, err := Open("npy:"+path, Options{Image: 2, Channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	least, largest := set.(Targets).TargetRange()
	if set.Classes() != 2 || Labels(set) != 2 || set.TrainLen() != 5 || set.TestLen() != 1 || least != 0 || largest != 11.0/16 {
		t.Errorf("%d targets, %d and %d samples, from %v to %v", set.Classes(), set.TrainLen(), set.TestLen(), least, largest)
	}
	b, err := NewBatcher(set, Test, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	images, targets := make([]float32, 8), make([]int32, 2)
	if _, err := b.Fill(0, images, targets); err != nil {
		t.Fatal(err)
	}
	if want := []float32{40, 44, 41, 45, 42, 46, 43, 47}; !slices.Equal(images, want) {
		t.Errorf("the last sample is %v, want %v", images, want)
	}
	for i, bits := range targets {
		if got := math.Float32frombits(uint32(bits)); got != y[10+i] {
			t.Errorf("target %d is %v, want %v", i, got, y[10+i])
		}
	}
}

// Integers are classes, and files of their own are held out.
func TestNumPyClasses(t *testing.T) {
	t.Parallel()
	path := npyFolder(t, map[string][]byte{
		"x.npy": npyFile(npyHeaderOf("|u1", "3, 2"), []uint8{1, 2, 3, 4, 5, 255}), "y.npy": npyFile(npyHeaderOf("<i8", "3,"), []int64{2, 0, 1}),
		"x_test.npy": npyFile(npyHeaderOf("<i2", "1, 2"), []int16{7, -8}), "y_test.npy": npyFile(npyHeaderOf("|i1", "1,"), []int8{1}),
	})
	set, err := Open("npy:"+path, Options{Image: 1, Channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	if HasTargets(set) || set.Classes() != 3 || set.TrainLen() != 3 || set.TestLen() != 1 {
		t.Errorf("%d classes, %d and %d samples", set.Classes(), set.TrainLen(), set.TestLen())
	}
	for _, c := range []struct {
		split  Split
		index  int64
		want   []float32
		label  int
		sample string
	}{{Train, 2, []float32{5, 255}, 1, "the last"}, {Test, 5, []float32{7, -8}, 1, "a held-out one"}} {
		dst := make([]float32, 2)
		if label, err := set.Fill(c.split, c.index, dst); err != nil || label != c.label || !slices.Equal(dst, c.want) {
			t.Errorf("%s is %v of class %d, %v", c.sample, dst, label, err)
		}
	}
}

// Samples C,T are as in the file, and may have a class for each position.
func TestNumPyPositions(t *testing.T) {
	t.Parallel()
	path := npyFolder(t, map[string][]byte{
		"x.npy": npyFile(npyHeaderOf("<f4", "3, 2, 4"), make([]float32, 8), []float32{1, 2, 3, 4, 5, 6, 7, 8}, make([]float32, 8)),
		"y.npy": npyFile(npyHeaderOf("<i8", "3, 2"), []int64{0, 1, 2, -100, 1, 1}),
	})
	set, err := Open("npy:"+path, Options{Axes: 2, Image: 4, Channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !Masked(set) || Labels(set) != 2 || set.Classes() != 3 {
		t.Errorf("%d labels of %d classes", Labels(set), set.Classes())
	}
	x, labels := make([]float32, 8), make([]int32, 2)
	if err := set.(Masks).FillMask(Train, 1, x, labels); err != nil || !slices.Equal(x, []float32{1, 2, 3, 4, 5, 6, 7, 8}) || !slices.Equal(labels, []int32{2, Ignored}) {
		t.Errorf("%v of classes %v, %v", x, labels, err)
	}
}

// Numbers of another shape than the model's are refused.
func TestNumPyShapes(t *testing.T) {
	t.Parallel()
	y := npyFile(npyHeaderOf("|u1", "2,"), []uint8{0, 1})
	for shape, o := range map[string]Options{
		"2, 3": {Axes: 1, Image: 1, Channels: 4}, "2, 4, 1, 1": {Axes: 1, Image: 1, Channels: 4}, "2, 4": {Axes: 2, Image: 2, Channels: 2}, "2, 3, 2": {Axes: 2, Image: 3, Channels: 2},
	} {
		x := npyFile(npyHeaderOf("|u1", shape), make([]uint8, map[string]int{"2, 3": 6, "2, 3, 2": 12}[shape]+map[bool]int{true: 8}[strings.Contains(shape, "4")]))
		_, err := Open("npy:"+npyFolder(t, map[string][]byte{"x.npy": x, "y.npy": y}), o)
		if !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "give it samples of this shape") {
			t.Errorf("shape %s: %v", shape, err)
		}
	}
}

// A file that is no array, or that does not fit the model, is refused with file, field and value.
func TestBadNumPy(t *testing.T) {
	t.Parallel()
	x, y := npyFile(npyHeaderOf("<f4", "2, 1"), []float32{1, 2}), npyFile(npyHeaderOf("<f4", "2,"), []float32{1, 2})
	header := func(header string) []byte { return npyFile(header, []float32{1, 2}) }
	version := bytes.Replace(x, []byte("\x01\x00"), []byte("\x03\x00"), 1)
	for _, c := range []struct {
		file    string
		content []byte
		kind    error
		text    string
	}{
		{"x.npy", []byte("PK\x03\x04 and more"), ErrCorrupt, "it starts with"},
		{"x.npy", version, ErrCorrupt, "format 3.0"},
		{"x.npy", x[:4], ErrTruncated, "first 8 bytes"},
		{"x.npy", x[:30], ErrTruncated, "header of"},
		{"x.npy", x[:len(x)-1], ErrTruncated, "takes 8 bytes after the header, and there are 7"},
		{"x.npy", append(slices.Clone(x), 0), ErrCorrupt, "there are 9"},
		{"x.npy", header("not a dictionary"), ErrCorrupt, "no dictionary"},
		{"x.npy", header("{'descr': '<f4', 'shape': (2, 1)}"), ErrCorrupt, "no fortran_order"},
		{"x.npy", header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 1)}"), ErrCorrupt, "not understood"},
		{"x.npy", header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1)}"), ErrCorrupt, "fortran_order is True"},
		{"x.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), 'more': True}"), ErrCorrupt, "more than descr"},
		{"x.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': '2'}"), ErrCorrupt, "no tuple"},
		{"x.npy", header(npyHeaderOf(">f4", "2, 1")), ErrCorrupt, "descr is '>f4'"},
		{"x.npy", header(npyHeaderOf("|O", "2, 1")), ErrCorrupt, "pickled objects"},
		{"x.npy", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 1)}"), ErrCorrupt, "descr is [('a', '<f4')]"},
		{"x.npy", header(npyHeaderOf("<f4", "99999999999999999999,")), ErrTooLarge, "shape"},
		{"x.npy", header(npyHeaderOf("<f4", "1099511627775, 1099511627775")), ErrTooLarge, "shape"},
		{"x.npy", npyFile(npyHeaderOf("<f4", "0, 1")), ErrNoImages, "[0 1] has no samples"},
		{"x.npy", npyFile(npyHeaderOf("<f4", ""), []float32{1}), ErrNoImages, "no samples"},
		{"x.npy", npyFile(npyHeaderOf("<f4", "3, 1"), []float32{1, 2, 3}), ErrCorrupt, "has 3 samples"},
		{"x.npy", npyFile(npyHeaderOf("<f4", "2, 1"), []float32{1, float32(math.NaN())}), ErrCorrupt, "element 0 of sample 1 is NaN"},
		{"x.npy", npyFile(npyHeaderOf("<f8", "2, 1"), []float64{1, 1e39}), ErrCorrupt, "1e+39"},
		{"x.npy", npyFile(npyHeaderOf("<f4", "2,"), []float32{1, 2}), ErrCorrupt, "want N,F"},
		{"x.npy", npyFile(npyHeaderOf("<f4", "2, 2"), []float32{1, 2, 3, 4}), ErrOption, "data.channels=2"},
		{"y.npy", npyFile(npyHeaderOf("<f4", "2, 1, 1"), []float32{1, 2}), ErrCorrupt, "want N or N,T"},
		{"y.npy", npyFile(npyHeaderOf("|u1", "2, 1"), []uint8{1, 2}), ErrCorrupt, "save targets as float32"},
		{"y.npy", npyFile(npyHeaderOf("|i1", "2,"), []int8{1, -1}), ErrLabel, "sample 1 has class -1"},
		{"y_test.npy", y, ErrOption, "only one of x_test.npy and y_test.npy"},
	} {
		files := map[string][]byte{"x.npy": x, "y.npy": y}
		files[c.file] = c.content
		_, err := Open("npy:"+npyFolder(t, files), Options{Image: 1, Channels: 1})
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s, %.120q: %v; want %v with %q", c.file, c.content, err, c.kind, c.text)
		}
	}
	if _, err := Open("npy:"+npyFolder(t, map[string][]byte{"x.npy": x}), Options{Image: 1, Channels: 1}); !errors.Is(err, ErrUnreadable) {
		t.Errorf("no y.npy: %v", err)
	}
}

// Any bytes are an array as large as its shape says, or an error that says what is wrong.
func FuzzNPY(f *testing.F) {
	f.Add(npyFile(npyHeaderOf("<f4", "2, 1"), []float32{1, 2}))
	f.Add(npyFile(npyHeaderOf("<i8", "2,"), []int64{1, 2}))
	f.Add(npyFile("{'shape': (), 'fortran_order': False, 'descr': '|u1'}", []uint8{1}))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := parseNPY(bytes.NewReader(file), int64(len(file)))
		switch {
		case err != nil && (a != nil || !explained(err)):
			t.Fatal(err)
		case err != nil:
			return
		}
		n := int64(1)
		for _, extent := range a.shape {
			n *= int64(extent)
		}
		if int64(len(a.bytes)) != n*int64(a.kind.bytes) || len(a.bytes) > len(file) {
			t.Fatalf("shape %v in %d bytes", a.shape, len(a.bytes))
		}
		if n > 0 {
			a.at(n - 1)
		}
	})
}
