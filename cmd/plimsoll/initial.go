package main

import (
	"errors"
	"fmt"
	"slices"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
)

// fits refuses weights to begin with that are not the model's, before anything is measured, and says what of them is left out.
func fits(a *app, r *train.Run) error {
	if r.Init == "" {
		return nil
	}
	left, err := checkpoint.Fits(r.Init, r.Job.Work.Tensors())
	if left > 0 && err == nil {
		a.note("--init %s: %d tensors of its auxiliary classifier (AuxLogits) are left out; if it was trained with transform_input, as torchvision's pretrained Inception v3 was, "+
			"it expects images of mean 0.5 and deviation 0.5, and --data %s has those of docs/data.md", r.Init, left, r.Job.Data)
	}
	if bad := (*checkpoint.TensorsError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("--init %w%s", err, classesOf(bad, r.Job))
	}
	return err
}

// classesOf says what to do where the tensors of a file are those of a model with another number of classes.
func classesOf(bad *checkpoint.TensorsError, j *train.Job) string {
	have := j.Config.Classes
	for _, s := range bad.Shapes {
		if len(s.File) == 0 || len(s.File) != len(s.Model) || s.Model[0] != have || s.File[0] == have || !slices.Equal(s.File[1:], s.Model[1:]) {
			continue
		}
		if n := s.File[0]; n >= j.Set.Classes() {
			return fmt.Sprintf(": the file is of a model with %d classes, this one has %d: give --classes %d", n, have, n)
		}
		return fmt.Sprintf(": the file is of a model with %d classes, too few for data set %s, which has %d", s.File[0], j.Set.Name(), j.Set.Classes())
	}
	return ""
}
