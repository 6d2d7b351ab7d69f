package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
	"plimsoll/internal/visible"
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

// openForeign opens the weights in a folder that has none of our shards: those of Hugging Face, in one file or in several that an index
// names. Errors: ErrNoWeights, ErrIndex, folder.ErrForeign, *safetensors.Error, those of the operating system.
func openForeign(path string) ([]*safetensors.File, error) {
	at := folder.At(path)
	switch {
	case at.Has(finalFile):
		return nil, fmt.Errorf("%s: %w: it is the folder of a run: give %s", path, ErrNoWeights, at.Path(finalFile))
	case at.Has(wholeFile):
		f, err := in(at, wholeFile)
		if err != nil {
			return nil, err
		}
		return []*safetensors.File{f}, nil
	case at.Has(indexFile):
		return openIndexed(at)
	}
	advice := "it is a folder without weights: give a safetensors file"
	if bins, _ := filepath.Glob(filepath.Join(path, "*.bin")); len(bins) > 0 {
		advice = fmt.Sprintf("it has weights of torch.save (%s), which run code when they are read: convert them to a safetensors file with PyTorch", filepath.Base(bins[0]))
	}
	return nil, fmt.Errorf("%s: %w: %s", path, ErrNoWeights, advice)
}

// ErrIndex says that an index of several files of weights does not tell what they hold.
var ErrIndex = errors.New("bad index of weights")

// mostPieces bounds the files that an index may name; each is open at once.
const mostPieces = 1000

// index is the content of an index: which file has which tensor.
type index struct {
	files map[string]string // by tensor
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *index) UnmarshalJSON(text []byte) error {
	o, err := fields.Parse(text)
	if err != nil {
		return err
	}
	o.Require("weight_map")
	inner := o.Object("weight_map")
	x.files = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(inner.Rest())) {
		inner.Require(name)
		x.files[name] = inner.Text(name, "")
	}
	return cmp.Or(o.Err(), inner.Err())
}

// openIndexed opens the files that the index of a folder names, which lie in the folder itself. Each has the tensors that the index says,
// and no others.
func openIndexed(at *folder.Dir) (all []*safetensors.File, err error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%s: %w: %s", at.Path(indexFile), ErrIndex, fmt.Sprintf(format, a...))
	}
	x, err := fields.ReadIn[index](at, indexFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIndex, err)
	}
	names := slices.Compact(slices.Sorted(maps.Values(x.files)))
	if len(names) > mostPieces {
		return nil, bad("it names %d files, more than %d", len(names), mostPieces)
	}
	for _, name := range names {
		if name != filepath.Base(name) || !strings.HasSuffix(name, ".safetensors") {
			return nil, bad("it names %q: want safetensors files in its folder", visible.Text(name))
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeFiles(all))
		}
	}()
	left := maps.Clone(x.files)
	for _, name := range names {
		f, err := in(at, name)
		if err != nil {
			return all, err
		}
		all = append(all, f)
		for _, t := range f.Tensors() {
			if left[t.Name] != name {
				return all, bad("%s has tensor %q, and the index does not say so", name, visible.Text(t.Name))
			}
			delete(left, t.Name)
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(left)) {
		return all, bad("%s has no tensor %q, which the index says", left[tensor], visible.Text(tensor))
	}
	return all, nil
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
	return fmt.Errorf("%w: it is file %s of %s, of which the others have the rest: give their folder, or make one of them, as with "+joinPieces, err, strings.TrimLeft(path[m[2]:m[3]], "0"),
		strings.TrimLeft(path[m[4]:m[5]], "0"), path[:m[0]]+"-*.safetensors")
}
