package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/atomicfile"
)

// Errors say which file to give in place of a folder or a file without weights.
func TestWhatHoldsNoWeights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files []string
		give  string // below the folder; "" the folder
		want  string
	}{
		"torch":       {[]string{"pytorch_model.bin", "config.json"}, "", "weights of torch.save (pytorch_model.bin)"},
		"torch parts": {[]string{"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}, "", "weights of torch.save (pytorch_model-00001-of-00002.bin)"},
		"run":         {[]string{finalFile, "log.jsonl"}, "", "it is the folder of a run: give "},
		"empty":       {nil, "", "a folder without weights"},
		"index":       {[]string{indexFile}, indexFile, "it is JSON: give the safetensors file beside it"},
		"config":      {[]string{"config.json"}, "config.json", "it is JSON"},
	} {
		folder := t.TempDir()
		for _, file := range c.files {
			must(t, os.WriteFile(filepath.Join(folder, file), []byte("{}"), 0o600))
		}
		path := filepath.Join(folder, c.give)
		_, err := Fits(path, little(1).tensors)
		if !errors.Is(err, ErrNoWeights) || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// The error of one of several files says that the others have the missing tensors.
func TestOneOfSeveralFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model-00002-of-00010.safetensors")
	must(t, os.Rename(torchFile(t, torchResNet(false, 10, 2, 2, 2, 2)[:1], nil), path))
	_, err := Fits(path, zoo(t, "resnet18", 10).tensors)
	if !errors.As(err, new(*TensorsError)) || !strings.Contains(err.Error(), "it is file 2 of 10, of which the others have the rest") {
		t.Error(err)
	}
}

// pieces writes the tensors of a model into several files of a folder, with their index, and returns the folder.
func pieces(t *testing.T, m Source) (at string, indexed map[string]string) {
	t.Helper()
	at, indexed = t.TempDir(), map[string]string{}
	all := collect(m, inference, Batches{})
	for i := range all {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(all))
		indexed[all[i].Name] = name
		must(t, atomicfile.WriteFile(filepath.Join(at, name), func(w io.Writer) error {
			return safetensors.Write(w, map[string]string{"format": "pt"}, all[i:i+1])
		}))
	}
	writeIndex(t, at, indexed)
	return at, indexed
}

func writeIndex(t *testing.T, at string, indexed map[string]string) {
	t.Helper()
	must(t, atomicfile.WriteJSON(filepath.Join(at, indexFile), map[string]any{"metadata": map[string]int{"total_size": 7}, "weight_map": indexed}))
}

// Weights in one file of a folder, or in several with their index, are those of the model.
func TestFoldersOfWeights(t *testing.T) {
	t.Parallel()
	from := little(3)
	several, indexed := pieces(t, from)
	if len(indexed) < 2 {
		t.Fatalf("%d tensors are not several", len(indexed))
	}
	one := t.TempDir()
	must(t, Export(filepath.Join(one, wholeFile), from, Batches{}, nil))
	for _, path := range []string{several, one} {
		into := little(4)
		if _, err := Import(path, into); err != nil {
			t.Fatal(err)
		}
		for _, x := range from.tensors {
			if inference(x.Role) && !slices.Equal(from.values[key(x)], into.values[key(x)]) {
				t.Errorf("%s: %s differs", path, x.Name)
			}
		}
	}
}

// An index that names files elsewhere, or tensors that are not there, is refused with its path.
func TestBadIndexes(t *testing.T) {
	t.Parallel()
	outside, _ := pieces(t, little(1))
	for what, c := range map[string]struct {
		change func(at string, indexed map[string]string, first string)
		want   string
	}{
		"above":    {func(_ string, x map[string]string, first string) { x[first] = "../" + x[first] }, "want safetensors files in its folder"},
		"absolute": {func(_ string, x map[string]string, first string) { x[first] = filepath.Join(outside, x[first]) }, "want safetensors files in its folder"},
		"below":    {func(_ string, x map[string]string, first string) { x[first] = "a/" + x[first] }, "want safetensors files in its folder"},
		"pickle":   {func(_ string, x map[string]string, first string) { x[first] = "pytorch_model.bin" }, "want safetensors files in its folder"},
		"none":     {func(_ string, x map[string]string, first string) { x[first] = "none.safetensors" }, "none.safetensors"},
		"left out": {func(_ string, x map[string]string, first string) { x["other"] = x[first]; delete(x, first) }, "and the index does not say so"},
		"too many": {func(_ string, x map[string]string, first string) { x["more"] = x[first] }, `has no tensor "more", which the index says`},
		"no file":  {func(_ string, x map[string]string, first string) { x[first] = "" }, "want safetensors files in its folder"},
		"link": {func(at string, x map[string]string, first string) {
			must(t, os.Remove(filepath.Join(at, x[first])))
			must(t, os.Symlink(filepath.Join(outside, x[first]), filepath.Join(at, x[first])))
		}, "link"},
	} {
		at, indexed := pieces(t, little(1))
		names := slices.Sorted(maps.Keys(indexed))
		c.change(at, indexed, names[0])
		writeIndex(t, at, indexed)
		if _, err := Fits(at, little(1).tensors); err == nil || !strings.Contains(err.Error(), at) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", what, err, c.want)
		}
	}
	at := t.TempDir()
	for text, want := range map[string]string{`{`: "unexpected end", `{"weight_map": []}`: "weight_map", `{}`: "weight_map", `{"weight_map": {"a": 7}}`: `"a"`} {
		must(t, os.WriteFile(filepath.Join(at, indexFile), []byte(text), 0o600))
		if _, err := Fits(at, little(1).tensors); !errors.Is(err, ErrIndex) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
