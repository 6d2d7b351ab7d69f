package checkpoint

import (
	"cmp"
	"slices"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
)

// Together is how processes load a checkpoint of which each has a part.
type Together struct {
	Parts [][]safetensors.Info // what each process has (Contents)
	// Share is called for each tensor of the model, in its order, in all processes. Those of have hold its values, all others get them,
	// if they need them.
	Share func(t executor.Tensor, have []int, values []float32) error
}

// Contents lists the tensors of a part by the names that the model has. Errors: *safetensors.Error.
func (c *Checkpoint) Contents() (all []safetensors.Info, err error) {
	names, err := modelNames(c.files)
	for name, s := range names {
		s.info.Name = name
		all = append(all, s.info)
	}
	slices.SortFunc(all, func(a, b safetensors.Info) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// RestoreTogether is Restore of a part, in all processes at the same time. Before anything is loaded every name and shape of all parts
// is checked.
func (c *Checkpoint) RestoreTogether(into Model, with *Together) error {
	own, err := modelNames(c.files)
	if err != nil {
		return err
	}
	all, have := map[string]stored{}, map[string][]int{}
	for process, part := range with.Parts {
		for _, info := range part {
			all[info.Name] = stored{name: info.Name, info: info}
			have[info.Name] = append(have[info.Name], process)
		}
	}
	if err := check(c.name, all, into.Tensors(), training); err != nil {
		return c.advise(err)
	}
	var by copier
	for _, t := range into.Tensors() {
		if !training(t.Role) {
			continue
		}
		values, first := by.fit(t), parts(t)[0].name // whose file has the others
		if _, here := own[first]; here {
			if values, err = by.read(own, t); err != nil {
				return err
			}
		}
		if err := with.Share(t, have[first], values); err != nil {
			return err
		}
		if err := into.Write(t, values); err != nil {
			return err
		}
	}
	return nil
}
