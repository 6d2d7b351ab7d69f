package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models"
)

// stored is a tensor of a file.
type stored struct {
	file *safetensors.File // nil: of another process
	name string
	info safetensors.Info
	// channelsLast is true in checkpoints of the first format: rows of a Linear behind an image are in the order H,W,C.
	channelsLast bool
}

// counts reports whether a tensor, by its name in the model, is the count of batches of a module, and which one's.
func (s stored) counts(name string) (module string, ok bool) {
	module, ok = strings.CutSuffix(name, countSuffix)
	return module, ok && s.info.DType == safetensors.I64 && len(s.info.Shape) == 0
}

// counted returns the counts of batches in files, by module.
func counted(files []*safetensors.File) (map[string]int64, error) {
	names, err := modelNames(files)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for name, have := range names {
		module, ok := have.counts(name)
		if !ok {
			continue
		}
		if all[module], err = have.file.Int64(have.name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// load copies the tensors of the kept roles from the files of what is called name; nothing before all names and shapes are
// checked.
func load(name string, files []*safetensors.File, into Model, kept roles) error {
	names, err := match(name, files, into.Tensors(), kept)
	if err != nil {
		return err
	}
	var c copier
	for _, t := range into.Tensors() {
		if !kept(t.Role) || ofBase(t, names) {
			continue
		}
		values, err := c.read(names, t)
		if err != nil {
			return err
		}
		if err := into.Write(t, values); err != nil {
			return err
		}
	}
	return nil
}

// read returns the values of a model's tensor, from its parts in files.
func (c *copier) read(names map[string]stored, t executor.Tensor) ([]float32, error) {
	model := c.fit(t)
	for _, p := range parts(t) {
		from, file := names[p.name], model[p.from:p.to]
		if p.image && from.channelsLast {
			p.n = 0
		}
		if p.n > 0 {
			file = room(&c.file, p.to-p.from)
		}
		if err := from.file.Float32(from.name, file); err != nil {
			return nil, err
		}
		if p.n > 0 {
			swap(model[p.from:p.to], file, p.n, p.columns, p.rows)
		}
	}
	return model, nil
}

// match returns the tensors of files by their names in a model, when those of the kept roles are the model's. Errors: *TensorsError,
// *safetensors.Error.
func match(name string, files []*safetensors.File, model []executor.Tensor, kept roles) (map[string]stored, error) {
	names, err := modelNames(files)
	if err != nil {
		return nil, err
	}
	return names, check(name, names, model, kept)
}

// check compares tensors with those of the kept roles of a model. Errors: *TensorsError.
func check(name string, names map[string]stored, model []executor.Tensor, kept roles) error {
	bad := &TensorsError{File: name}
	known := map[string]bool{}
	for _, t := range model {
		if !kept(t.Role) || !kept("state0") && ofBase(t, names) {
			continue
		}
		for _, p := range parts(t) {
			known[p.name] = true
			if have, ok := names[p.name]; !ok {
				bad.Missing = append(bad.Missing, p.name)
			} else if !slices.Equal(have.info.Shape, p.shape) {
				bad.Shapes = append(bad.Shapes, ShapeError{Tensor: have.name, File: have.info.Shape, Model: p.shape})
			}
		}
	}
	bad.Unexpected = unexpected(names, known, kept)
	if len(bad.Missing)+len(bad.Unexpected)+len(bad.Shapes) > 0 {
		return bad
	}
	return nil
}

// ofBase reports whether a tensor is an adapter's and files have no adapter: they are those of the model without.
func ofBase(t executor.Tensor, names map[string]stored) bool {
	if !models.IsAdapter(t.Name) || strings.HasPrefix(t.Name, adapterPrefix) {
		return false
	}
	for name := range names {
		if models.IsAdapter(name) {
			return false
		}
	}
	return true
}

// unexpected lists the tensors of files that a model does not know, without the extra ones that files may have. These
// are counts of batches, an auxiliary classifier, constants, and optimizer states when no state is kept.
func unexpected(names map[string]stored, known map[string]bool, kept roles) []string {
	var list []string
	for ours, have := range names {
		state := strings.HasPrefix(ours, statePrefix) && !kept("state0")
		_, count := have.counts(ours)
		auxiliary := strings.HasPrefix(ours, auxPrefix)
		if !known[ours] && !state && !count && !auxiliary && !constant.MatchString(ours) {
			list = append(list, have.name)
		}
	}
	slices.Sort(list)
	return list
}

// modelNames maps the names that the model has to the tensors of files, without their checksums. Errors: *safetensors.Error
// when two of them mean the same tensor.
func modelNames(files []*safetensors.File) (map[string]stored, error) {
	names := map[string]stored{}
	for _, f := range files {
		old := f.Metadata()["format"] == firstFormat
		for _, t := range f.Tensors() {
			if t.Name == sumName {
				continue
			}
			ours := modelName(t.Name)
			if twin, ok := names[ours]; ok {
				return nil, &safetensors.Error{File: f.Name(), Tensor: t.Name, Err: twin.same(f, ours)}
			}
			names[ours] = stored{f, t.Name, t, old}
		}
	}
	return names, nil
}

// same says that a tensor of a file means what this one does.
func (s stored) same(f *safetensors.File, ours string) error {
	if f == s.file {
		return fmt.Errorf("it means %q, as %q does", ours, s.name)
	}
	return fmt.Errorf("it means %q, as %q of %s does", ours, s.name, s.file.Name())
}

// denseLayer matches the names that DenseNets had before PyTorch 0.4: "denselayer1.norm.1.weight" for "norm1.weight".
var denseLayer = regexp.MustCompile(`(denselayer\d+\.(?:norm|conv))\.([12]\.)`)

// bareGPT2 matches the names of Hugging Face's GPT-2 without a head, which is how the published weights are saved.
var bareGPT2 = regexp.MustCompile(`^((?:wte|wpe|ln_f|h\.\d+)\.)`)

// modelName returns the model's name of a file's tensor: without the prefixes of PyTorch's wrappers for many devices and
// for compilation.
func modelName(name string) string {
	for _, wrapper := range []string{"module.", "_orig_mod."} {
		name = strings.TrimPrefix(name, wrapper)
	}
	return bareGPT2.ReplaceAllString(denseLayer.ReplaceAllString(name, "$1$2"), "transformer.$1")
}
