package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"plimsoll/models"
	"plimsoll/models/importer"
)

// moved is a model whose initializers have their elements in a file, at the end of which data grows; entry gives the fields of one.
func moved(t *testing.T, message []byte, data *[]byte, entry func(offset, length int) map[string]string) []byte {
	t.Helper()
	tensor := func(message []byte) (out []byte) {
		must(t, fields(message, func(f field) error {
			if f.number != 9 {
				out = appendField(out, f)
				return nil
			}
			for key, value := range entry(len(*data), len(f.bytes)) {
				out = append(out, nested(13, text(1, key), text(2, value))...)
			}
			*data = append(*data, f.bytes...)
			out = append(out, number(14, 1)...)
			return nil
		}))
		return out
	}
	return within(t, message, 7, func(graph []byte) []byte { return within(t, graph, 5, tensor) })
}

// within is a message with fields of a number changed.
func within(t *testing.T, message []byte, number protowire.Number, change func([]byte) []byte) (out []byte) {
	t.Helper()
	must(t, fields(message, func(f field) error {
		if f.number == number {
			f.bytes = change(f.bytes)
		}
		out = appendField(out, f)
		return nil
	}))
	return out
}

func appendField(out []byte, f field) []byte {
	out = protowire.AppendTag(out, f.number, f.wire)
	switch f.wire {
	case protowire.VarintType:
		return protowire.AppendVarint(out, f.value)
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(out, uint32(f.value))
	}
	return protowire.AppendBytes(out, f.bytes)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestExternalData: a model whose weights lie in a second file is the model that has them in its own.
func TestExternalData(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tiny", "sdpa"} {
		whole := filepath.Join("testdata", name, "model.onnx")
		message, err := os.ReadFile(whole)
		must(t, err)
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "weights"), 0o700))
		var data []byte
		apart := moved(t, message, &data, func(offset, length int) map[string]string {
			return map[string]string{"location": "weights/model.data", "offset": fmt.Sprint(offset), "length": fmt.Sprint(length), "checksum": "x"}
		})
		if len(data) == 0 || len(apart) >= len(message) {
			t.Fatalf("%s: %d bytes of weights moved, %d of %d stayed", name, len(data), len(apart), len(message))
		}
		must(t, os.WriteFile(filepath.Join(dir, "model.onnx"), apart, 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "weights", "model.data"), data, 0o600))
		one, err := Open(whole)
		must(t, err)
		other, err := Open(filepath.Join(dir, "model.onnx"))
		must(t, err)
		if a, b := weightsOf(t, one), weightsOf(t, other); a != b || len(a) < 100 {
			t.Errorf("%s: the weights differ:\n%.300s\n%.300s", name, a, b)
		}
	}
}

// TestHostileExternalData: nothing outside the model's folder is read, and files that are too short are refused with both sizes.
func TestHostileExternalData(t *testing.T) {
	t.Parallel()
	message, err := os.ReadFile("testdata/tiny/model.onnx")
	must(t, err)
	dir := t.TempDir()
	folder := filepath.Join(dir, "model")
	must(t, os.Mkdir(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "secret"), make([]byte, 1<<20), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "short"), make([]byte, 10), 0o600))
	must(t, os.Symlink(filepath.Join(dir, "secret"), filepath.Join(folder, "link")))
	must(t, os.Symlink(dir, filepath.Join(folder, "up")))
	for _, c := range []struct {
		location, offset, length, want string
	}{
		{"../secret", "0", "4", "escapes"},
		{filepath.Join(dir, "secret"), "0", "4", "escapes"},
		{"link", "0", "4", "escapes"},
		{"up/secret", "0", "4", "escapes"},
		{"none", "0", "4", "no such file"},
		{".", "0", "4", "regular file"},
		{"short", "8", "4", "has 10 bytes, want 4 from byte 8 on"},
		{"short", "9223372036854775807", "9223372036854775807", "has 10 bytes"},
		{"short", "0", "0", "has 10 bytes, want"},
		{"short", "-1", "4", `the offset "-1"`},
		{"short", "0", "x", `the length "x"`},
	} {
		var data []byte
		apart := moved(t, message, &data, func(_, _ int) map[string]string {
			return map[string]string{"location": c.location, "offset": c.offset, "length": c.length}
		})
		path := filepath.Join(folder, "model.onnx")
		must(t, os.WriteFile(path, apart, 0o600))
		_, err := Open(path)
		if err == nil || !errors.Is(err, importer.ErrUnsupported) && !errors.Is(err, importer.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s from %s, %s bytes: %v, want %q", c.location, c.offset, c.length, err, c.want)
		}
	}
}

// weightsOf are the parameters of a file's model with their first values.
func weightsOf(t *testing.T, f models.File) string {
	t.Helper()
	m, err := f.Build("m.onnx", models.Config{Batch: 2, Image: f.Image, Channels: f.Channels, Classes: f.Classes})
	must(t, err)
	var b strings.Builder
	for _, p := range m.Params() {
		values := make([]float32, p.Desc.Elements())
		models.Init(p, 7, values)
		fmt.Fprintln(&b, p.Name, p.Desc.Shape, values)
	}
	return b.String()
}
