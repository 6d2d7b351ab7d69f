package onnx

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"plimsoll/models"
	"plimsoll/models/importer"
)

// read reads bytes as a file, and builds its model; errors must be of a kind, and name the file.
func read(t testing.TB, message []byte) (read bool) {
	f, err := Read("x.onnx", message)
	if err == nil {
		_, err = f.Build("x.onnx", models.Config{Batch: 2, Image: f.Image, Channels: f.Channels, Classes: f.Classes})
		read = true
	}
	known := errors.Is(err, importer.ErrFormat) || errors.Is(err, importer.ErrUnsupported) || errors.Is(err, models.ErrConfig) || errors.Is(err, models.ErrGraph)
	if err != nil && (!known || !strings.Contains(err.Error(), "x.onnx") || len(err.Error()) > 64<<10) {
		t.Errorf("%.300v", err)
	}
	return read
}

// mutate changes some bytes of a file, takes some out or puts some in, or makes a number large.
func mutate(r *rand.Rand, message []byte) []byte {
	b := append([]byte{}, message...)
	for range 1 + r.IntN(4) {
		at := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.IntN(256))
		case 2:
			b = append(b[:at:at], b[min(at+1+r.IntN(40), len(b)):]...)
		case 3:
			n := min(1+r.IntN(60), len(b)-at)
			b = append(b[:at:at], append(append([]byte{}, b[at:at+n]...), b[at:]...)...)
		case 4:
			b = append(b[:at:at], append(binary.AppendUvarint(nil, r.Uint64()>>r.IntN(64)), b[min(at+1, len(b)):]...)...)
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// 5,000 files with mistakes: none panics, and they take little memory.
func TestMutatedFiles(t *testing.T) {
	// Serial: it counts allocations.
	r := rand.New(rand.NewPCG(1, 2))
	fine, all := 0, 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for all < 5000 {
		name := names[all/3%2] // the short ones, and in their turn transformers
		if all%3 == 0 {
			name = names[3+all/3%3]
		}
		_, message := fixture(t, name)
		if all++; read(t, mutate(r, message)) {
			fine++
		}
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / 5000; per > 1<<20 {
		t.Errorf("%d bytes a file", per)
	}
	if fine < 100 || fine > 4900 {
		t.Errorf("%d of %d files are read", fine, all)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range names {
		_, message := fixture(f, name)
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) { read(t, message) })
}

// nested is a field that has a message.
func nested(number protowire.Number, fields ...[]byte) []byte {
	var all []byte
	for _, f := range fields {
		all = append(all, f...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), all)
}

func number(number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
}

func text(number protowire.Number, s string) []byte { return nested(number, []byte(s)) }

// anything, as often as it takes.
func repeat(n int, b []byte) []byte {
	var all []byte
	for range n {
		all = append(all, b...)
	}
	return all
}

// Files that promise more than they have, or more than anybody trains, are refused for what they are.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	node, relu := nested(1), nested(1, text(4, "Relu"))
	images := nested(11, text(1, "x"), nested(2, nested(1, number(1, 1), nested(2, repeat(2, nested(1, number(1, 2))), repeat(2, nested(1, number(1, 8)))))))
	logits := nested(12, text(1, "y"))
	weight := func(fields ...[]byte) []byte { // y = conv(x) with an initializer w
		conv := nested(1, text(1, "x"), text(1, "w"), text(2, "y"), text(4, "Conv"))
		return nested(7, conv, images, logits, nested(5, append([][]byte{text(8, "w")}, fields...)...))
	}
	large := number(1, 1<<40)
	for _, c := range []struct {
		what    string
		message []byte
		kind    error
		want    string
	}{
		{"nothing", nil, importer.ErrFormat, "no graph"},
		{"no message", []byte("PK\x03\x04 and so on"), importer.ErrFormat, "x.onnx"},
		{"no nodes", nested(7, images), importer.ErrFormat, "no graph"},
		{"many nodes", nested(7, repeat(importer.MostNodes+1, node)), importer.ErrFormat, "more than 16384 nodes"},
		{"many inputs", nested(7, nested(1, repeat(mostNames+1, text(1, "")))), importer.ErrFormat, "inputs and outputs"},
		{"many attributes", nested(7, nested(1, repeat(mostAttributes+1, nested(5)))), importer.ErrFormat, "attributes"},
		{"a long name", nested(7, nested(1, text(3, strings.Repeat("x", mostName+1)))), importer.ErrFormat, "a name of 4097 bytes"},
		{"many axes", weight(repeat(9, number(1, 1))), importer.ErrFormat, "9 numbers or more"},
		{"functions", append(nested(7, relu), nested(25)...), importer.ErrFormat, "1 functions"},
		{"sparse", nested(7, relu, nested(15)), importer.ErrFormat, "sparse"},
		{"no inputs", nested(7, relu), importer.ErrUnsupported, "0 inputs and 0 outputs"},
		{"two outputs", nested(7, relu, images, logits, logits), importer.ErrUnsupported, "1 inputs and 2 outputs"},
		{"no logits", nested(7, relu, images, logits), importer.ErrUnsupported, `output "y" is no logits`},
		{"large", weight(large, large, number(2, 1)), importer.ErrUnsupported, "has a shape of [1099511627776 1099511627776]"},
		{"too short", weight(repeat(4, number(1, 3)), number(2, 1), text(9, "1234")), importer.ErrUnsupported, "has 4 bytes, want 324"},
		{"in floats", weight(repeat(4, number(1, 3)), number(2, 1), text(4, "1234")), importer.ErrUnsupported, "has 4 bytes, want 324"},
		{"float16", weight(number(1, 1), number(2, 10), text(9, "12")), importer.ErrUnsupported, "float16"},
		{"external", weight(number(1, 1), number(2, 1), nested(13, text(1, "location"))), importer.ErrUnsupported, "want a file in the model's folder"},
	} {
		if _, err := Read("x.onnx", c.message); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
		read(t, c.message)
	}
}
