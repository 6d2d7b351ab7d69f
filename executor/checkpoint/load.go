package checkpoint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
)

// load copies the tensors of the kept roles from a file; nothing before all names and shapes are checked.
func load(f *safetensors.File, into Model, kept roles) error {
	names, err := modelNames(f)
	if err != nil {
		return err
	}
	bad := &TensorsError{File: f.Name()}
	var tensors []executor.Tensor
	for _, t := range into.Tensors() {
		if !kept(t.Role) {
			continue
		}
		tensors = append(tensors, t)
		if name, ok := names[fileName(t)]; ok {
			bad.compare(f, name, t)
		} else {
			bad.Missing = append(bad.Missing, fileName(t))
		}
	}
	bad.Unexpected = unexpected(f, names, tensors, kept)
	if len(bad.Missing)+len(bad.Unexpected)+len(bad.Shapes) > 0 {
		return bad
	}
	var c copier
	for _, t := range tensors {
		if err := c.load(f, names[fileName(t)], into, t); err != nil {
			return err
		}
	}
	return nil
}

// compare notes a difference between a tensor in a file and in the model.
func (e *TensorsError) compare(f *safetensors.File, name string, t executor.Tensor) {
	if have, _ := f.Tensor(name); !slices.Equal(have.Shape, fileShape(t)) {
		e.Shapes = append(e.Shapes, ShapeError{Tensor: name, File: have.Shape, Model: fileShape(t)})
	}
}

// unexpected lists the tensors of a file that nothing was loaded from, without those that files may have beside a
// model's: counts of batches, the checksum, an auxiliary classifier, and optimizer states when no state is kept.
func unexpected(f *safetensors.File, names map[string]string, used []executor.Tensor, kept roles) []string {
	known := map[string]bool{sumName: true}
	for _, t := range used {
		known[fileName(t)] = true
	}
	var list []string
	for ours, name := range names {
		state := strings.HasPrefix(ours, statePrefix) && !kept("state0")
		info, _ := f.Tensor(name)
		count := strings.HasSuffix(ours, countSuffix) && info.DType == safetensors.I64 && len(info.Shape) == 0
		auxiliary := strings.HasPrefix(ours, auxPrefix)
		if !known[ours] && !state && !count && !auxiliary {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// modelNames maps the names that the model has to those in a file. Errors: *safetensors.Error when two names of a file mean
// the same tensor.
func modelNames(f *safetensors.File) (map[string]string, error) {
	names := map[string]string{}
	for _, t := range f.Tensors() {
		ours := modelName(t.Name)
		if twin, ok := names[ours]; ok {
			return nil, &safetensors.Error{File: f.Name(), Tensor: t.Name, Err: fmt.Errorf("it means %q, as %q does", ours, twin)}
		}
		names[ours] = t.Name
	}
	return names, nil
}

// denseLayer matches the names that DenseNets had before PyTorch 0.4: "denselayer1.norm.1.weight" for "norm1.weight".
var denseLayer = regexp.MustCompile(`(denselayer\d+\.(?:norm|conv))\.([12]\.)`)

// modelName returns what a tensor of a file is called in the model: without what PyTorch's wrappers for many devices and
// for compilation put before a name.
func modelName(name string) string {
	for _, wrapper := range []string{"module.", "_orig_mod."} {
		name = strings.TrimPrefix(name, wrapper)
	}
	return denseLayer.ReplaceAllString(name, "$1$2")
}
