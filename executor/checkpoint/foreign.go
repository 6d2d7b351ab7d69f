package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNoWeights: a path is no file of weights; the message says which file to give instead.
var ErrNoWeights = errors.New("not a file of weights")

// Files of Hugging Face's folders.
const (
	wholeFile = "model.safetensors"
	indexFile = "model.safetensors.index.json"
	finalFile = "final.safetensors" // of a run's folder
)

// pieceName matches the name of one of several files that together hold a model's tensors.
var pieceName = regexp.MustCompile(`-(\d{5})-of-(\d{5})\.safetensors$`)

// joinPieces is the command that makes one file of several.
const joinPieces = `python -c "import glob, safetensors.torch as s; s.save_file({k: v for f in glob.glob('%s') for k, v in s.load_file(f).items()}, 'FILE.safetensors')"`

// noWeights returns an error that names the file to give in place of a folder without our shards.
func noWeights(folder string) error {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(folder, name))
		return err == nil
	}
	bins, _ := filepath.Glob(filepath.Join(folder, "*.bin"))
	advice := "it is a folder without weights: give a safetensors file"
	switch {
	case has(finalFile):
		advice = "it is the folder of a run: give " + filepath.Join(folder, finalFile)
	case has(indexFile):
		advice = fmt.Sprintf("it has Hugging Face's weights in several files, which are not read yet: make one of them, as with "+joinPieces, filepath.Join(folder, "model-*.safetensors"))
	case has(wholeFile):
		advice = "it is a folder of Hugging Face, which is not read as one yet: give " + filepath.Join(folder, wholeFile)
	case len(bins) > 0:
		advice = fmt.Sprintf("it has weights of torch.save (%s), which run code when they are read: convert them to a safetensors file with PyTorch", filepath.Base(bins[0]))
	}
	return fmt.Errorf("%s: %w: %s", folder, ErrNoWeights, advice)
}

// textFile refuses files of JSON, such as config.json; it returns nil for other files.
func textFile(path string) error {
	if !strings.HasSuffix(path, ".json") {
		return nil
	}
	return fmt.Errorf("%s: %w: it is JSON: give the safetensors file beside it", path, ErrNoWeights)
}

// ofSeveral adds to an error of missing tensors that the file is one of several, if its name says so.
func ofSeveral(path string, err error) error {
	m := pieceName.FindStringSubmatchIndex(path)
	if m == nil || !errors.As(err, new(*TensorsError)) {
		return err
	}
	return fmt.Errorf("%w: it is file %s of %s, of which the others have the rest: make one of them, as with "+joinPieces, err, strings.TrimLeft(path[m[2]:m[3]], "0"),
		strings.TrimLeft(path[m[4]:m[5]], "0"), path[:m[0]]+"-*.safetensors")
}
