package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Errors say which file to give in place of a folder or a file without weights.
func TestWhatHoldsNoWeights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files []string
		give  string // below the folder; "" the folder
		want  string
	}{
		"pieces":      {[]string{indexFile, "model-00001-of-00002.safetensors", "config.json"}, "", "in several files, which are not read yet: make one of them, as with python"},
		"whole":       {[]string{wholeFile, "config.json", "tokenizer.json"}, "", "which is not read as one yet: give "},
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
