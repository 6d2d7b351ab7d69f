package train

import (
	"errors"
	"fmt"

	"plimsoll/executor/commands"
	pipe "plimsoll/executor/pipeline"
)

// Tables binds the run's plan to its devices and returns the commands that each of them is to play, without playing any. Errors: ErrSpec
// for a run in several processes, those of the devices and of the executors.
func (r *Run) Tables() (tables []commands.Table, err error) {
	if r.World != nil {
		return nil, fmt.Errorf("%w: the tables of a run in several processes are not listed: list those of the same plan in one process", ErrSpec)
	}
	on, err := r.Job.Targets()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeTargets(on)) }()
	c := &pipelineEngine{feed: &feed{}, parts: r.Job.parts(), current: currentPass{next: r.begun() * r.Job.parts()}}
	if !r.Plan.IsPipeline() {
		c.along = &alongSequence{}
	}
	o := c.options(r)
	o.Audit = false
	x, err := pipe.New(r.Plan.Work, on, r.Plan.Costs, r.Plan.steps(), o)
	if err != nil {
		return nil, err
	}
	return pipe.Commands(x), nil
}
