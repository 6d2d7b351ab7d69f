package torchexport

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"plimsoll/models"
	"plimsoll/models/importer"
)

// readAll reads bytes as an archive, and builds its model; errors must be of a kind, and name the file.
func readAll(t testing.TB, archive []byte) (read bool) {
	t.Helper()
	f, err := Read("x.pt2", archive)
	if err == nil {
		_, err = f.Build("x.pt2", models.Config{Batch: 2, Image: f.Image, Channels: f.Channels, Classes: f.Classes})
		read = true
	}
	known := errors.Is(err, importer.ErrFormat) || errors.Is(err, importer.ErrUnsupported) || errors.Is(err, models.ErrConfig) || errors.Is(err, models.ErrGraph)
	if err != nil && (!known || !strings.Contains(err.Error(), "x.pt2") || len(err.Error()) > 64<<10) {
		t.Errorf("%.300v", err)
	}
	return read
}

// mutate changes some bytes, takes some out or puts some in, or writes another number or word of a description.
func mutate(r *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	words := []string{"-1", "0", "1", "2", "9223372036854775807", "1e400", "null", "true", `"x"`, "[]", "{}", `"as_none"`, `"as_ints"`, `"relu"`}
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			return b
		}
		at := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b = append(b[:at:at], b[min(at+1+r.IntN(40), len(b)):]...)
		case 2:
			n := min(1+r.IntN(60), len(b)-at)
			b = append(b[:at:at], append(slices.Clone(b[at:at+n]), b[at:]...)...)
		default:
			from := at + bytes.IndexAny(b[at:], "0123456789")
			if from < at {
				continue
			}
			to := from
			for to < len(b) && b[to] >= '0' && b[to] <= '9' {
				to++
			}
			b = append(b[:from:from], append([]byte(words[r.IntN(len(words))]), b[to:]...)...)
		}
	}
	return b
}

// 1,000 archives with mistakes, in their bytes or in an entry whose checksum is right: none panics, and they take little memory.
func TestMutatedArchives(t *testing.T) {
	// Serial: it counts allocations.
	r := rand.New(rand.NewPCG(1, 2))
	parts := map[string]map[string][]byte{}
	for _, name := range names {
		_, archive := fixture(t, name)
		parts[name] = entries(t, archive)
	}
	fine, all := 0, 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for all < 1000 {
		_, archive := fixture(t, names[all%len(names)])
		if all%4 == 0 {
			archive = mutate(r, archive)
		} else {
			e := maps.Clone(parts[names[all%len(names)]])
			kind := []string{model, model, weights, "data/constants/model_constants_config.json", "archive_version"}[r.IntN(5)]
			if r.IntN(10) == 0 {
				kind = slices.Sorted(maps.Keys(e))[r.IntN(len(e))]
			}
			e[kind] = mutate(r, e[kind])
			archive = packed(t, e)
		}
		if all++; readAll(t, archive) {
			fine++
		}
	}
	runtime.ReadMemStats(&after)
	if per := (after.TotalAlloc - before.TotalAlloc) / 1000; per > 8<<20 {
		t.Errorf("%d bytes an archive", per)
	}
	if fine < 50 || fine > 950 {
		t.Errorf("%d of %d archives are read", fine, all)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range names {
		_, archive := fixture(f, name)
		f.Add(archive)
		f.Add(packed(f, entries(f, archive)))
	}
	f.Fuzz(func(t *testing.T, archive []byte) { readAll(t, archive) })
}

// FuzzProgram changes the description alone, in an archive whose checksums are right.
func FuzzProgram(f *testing.F) {
	all := map[string]map[string][]byte{}
	for _, name := range names {
		_, archive := fixture(f, name)
		all[name] = entries(f, archive)
		f.Add(name, all[name][model])
	}
	f.Fuzz(func(t *testing.T, name string, description []byte) {
		if all[name] == nil {
			return
		}
		e := maps.Clone(all[name])
		e[model] = description
		readAll(t, packed(t, e))
	})
}

// withEntry returns an archive with one more entry, under any name.
func withEntry(t *testing.T, name string, data string) []byte {
	t.Helper()
	_, archive := fixture(t, "tiny")
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for entry, text := range entries(t, archive) {
		f, err := w.CreateHeader(&zip.FileHeader{Name: "model/" + entry})
		if err == nil {
			_, err = f.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	if err == nil {
		_, err = f.Write([]byte(data))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Archives that are none, promise more than they have, or have names that lead outside, are refused for what they are.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	_, small := fixture(t, "tiny")
	without := func(entry string) []byte {
		e := entries(t, small)
		delete(e, entry)
		return packed(t, e)
	}
	damaged := packed(t, entries(t, small))
	if at := bytes.Index(damaged, []byte("data/weights/weight_3")) + len("data/weights/weight_3"); at > 100 {
		damaged[at+4] ^= 1
	}
	size := `{"as_int": 4}, {"as_int": 3}, {"as_int": 3}, {"as_int": 3}`
	for _, c := range []struct {
		what    string
		archive []byte
		want    string
	}{
		{"nothing", nil, "no zip archive"},
		{"an ONNX file", []byte("\x08\x08\x12\x07pytorch"), "no zip archive"},
		{"outside", withEntry(t, "model/../../etc/passwd", "x"), "the name is no path inside"},
		{"absolute", withEntry(t, "/model/x", "x"), "the name is no path inside"},
		{"backslashes", withEntry(t, `model\..\x`, "x"), "the name is no path inside"},
		{"another folder", withEntry(t, "other/x", "x"), "all entries in one folder"},
		{"twice", withEntry(t, "model/byteorder", "little"), "is there twice"},
		{"two models", withEntry(t, "model/models/other.json", "{}"), "it has 2 models"},
		{"damaged", damaged, "checksum is wrong"},
		{"no version", without("archive_version"), `no entry "archive_version"`},
		{"another version", changed(t, "tiny", "archive_version", "0", "1"), `archive_version is "1", and only "0" is read: export it with PyTorch 2.15`},
		{"another schema", changed(t, "tiny", model, `"major": 8`, `"major": 9`), "schema_version is 9.20, and 8 is read: export it with PyTorch 2.15"},
		{"big-endian", changed(t, "tiny", "byteorder", "little", "big"), `byteorder is "big"`},
		{"no weights", without("data/weights/weight_0"), `tensor "stem.0.weight": it has no entry "data/weights/weight_0"`},
		{"a path", changed(t, "tiny", weights, `"weight_0"`, `"../../../x"`), `it has no entry "data/weights/../../../x"`},
		{"large", changed(t, "tiny", weights, size, `{"as_int": 4611686018427387904}, {"as_int": 4611686018427387904}`), "has a shape of"},
		{"longer", changed(t, "tiny", weights, size, `{"as_int": 5}, {"as_int": 3}, {"as_int": 3}, {"as_int": 3}`), "its file has 432 bytes"},
		{"symbols", changed(t, "tiny", weights, size, `{"as_expr": {"expr_str": "s0"}}`), "its sizes are no list"},
		{"many axes", changed(t, "tiny", weights, size, strings.TrimSuffix(strings.Repeat(`{"as_int": 1},`, 9), ",")), "at most 8 numbers"},
		{"no JSON", changed(t, "tiny", model, "{", "["), `entry "models/model.json"`},
		{"deep JSON", changed(t, "tiny", model, `"nodes": [`, `"nodes": [`+strings.Repeat("[", 20000)), `entry "models/model.json"`},
	} {
		if _, err := Read("x.pt2", c.archive); !errors.Is(err, importer.ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
		readAll(t, c.archive)
	}
}

// A compressed entry is not unpacked beyond what the archive may take.
func TestBombs(t *testing.T) {
	t.Parallel()
	_, archive := fixture(t, "tiny")
	for entry, size := range map[string]int{"data/weights/weight_0": mostInflated, model: mostJSON, "byteorder": 100} {
		e := entries(t, archive)
		delete(e, entry)
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for name, data := range e {
			f, err := w.Create("model/" + name)
			if err == nil {
				_, err = f.Write(data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		f, err := w.Create("model/" + entry)
		size += len(archive)
		if err == nil {
			_, err = f.Write(make([]byte, size+1))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Read("x.pt2", b.Bytes()); !errors.Is(err, importer.ErrFormat) || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", entry, err)
		}
		small := b.Bytes()
		// A size that is not true: the central directory says 4 bytes.
		if at := bytes.LastIndex(small, binary.LittleEndian.AppendUint32(nil, uint32(size+1))); at > 0 {
			binary.LittleEndian.PutUint32(small[at:], 4)
			readAll(t, small)
		}
	}
}
