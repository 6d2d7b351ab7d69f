package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/internal/folder"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// follow says what a process other than rank 0 keeps of a run: the shards of its stages.
func (f *keepFlags) follow(place *folder.Folder) (train.Saves, error) {
	if place == nil {
		return train.Saves{}, nil
	}
	s := train.Saves{Dir: f.saves(place).Dir, Every: f.every}
	steps, err := s.Dir.Steps()
	switch {
	case err != nil:
		err = fmt.Errorf("--out %s: %w", f.out.path, err)
	case len(steps) > 0 && !f.resume && !f.force:
		err = fmt.Errorf("--out %s holds checkpoints of a run: go on with it with --resume, begin anew with --force, or give another folder", f.out.path)
	}
	return s, usage(err)
}

// tellFolder tells the other processes, once rank 0 has its folder, what the run is called in it.
func (c *trainCommand) tellFolder(ctx context.Context, run string) error {
	w := c.processes
	if w == nil || c.keep.out.path == "" {
		return nil
	}
	_, err := w.Broadcast(ctx, 0, []byte(run))
	return firstOf(err, w.Meet(ctx))
}

// followFolder opens the folder of a process other than rank 0. It is rank 0's, or that of another process of the run. On a disk of its own it is
// locked as rank 0's is.
func (c *trainCommand) followFolder(ctx context.Context) (*folder.Folder, error) {
	w, out := c.processes, &c.keep.out
	if out.path == "" {
		return nil, nil
	}
	run, err := w.Broadcast(ctx, 0, nil)
	if err != nil {
		return nil, err
	}
	place, err := folder.Open(out.path, string(run))
	busy := is[*folder.BusyError](err)
	if err != nil && !busy {
		return nil, usage(fmt.Errorf("--out %s: %w", out.path, err))
	}
	if err := w.Meet(ctx); err != nil { // whoever has a folder then says so in it
		return nil, firstOf(err, place.Close())
	}
	if busy {
		return out.open(ctx, c.app, string(run))
	}
	return place, nil
}

// bringRun brings rank 0 the files that say which run goes on, and how. Where its own folder lacks them, they come from the first process that
// has them: with disks of their own, that is the process that was rank 0.
func (c *trainCommand) bringRun(ctx context.Context) error {
	w, out := c.processes, c.keep.out.path
	if w == nil {
		return nil
	}
	flags := map[string]string{"--out given": strconv.FormatBool(out != ""), "--resume": strconv.FormatBool(c.keep.resume), "--force": strconv.FormatBool(c.keep.force)}
	if err := w.Agree(ctx, flags); err != nil || !c.keep.resume {
		return err
	}
	here := folder.At(out)
	has, err := w.AllGather(ctx, strconv.AppendBool(nil, here.Has(runFile)))
	from := slices.IndexFunc(has, func(b []byte) bool { return string(b) == "true" })
	if err != nil || from <= 0 {
		return err
	}
	for _, name := range []string{"chain.json", "plan.json", logFile, runFile} {
		var own []byte
		if w.Rank() == from {
			own, _ = here.ReadFile(name) // or there is none
		}
		text, err := w.Bring(ctx, from, own)
		if err != nil {
			return err
		}
		if len(text) > 0 {
			c.keep.brought = append(c.keep.brought, brought{name, text})
		}
	}
	c.note("%s has no %s: that of rank %d on %s is taken, with its log and its plan", out, runFile, from, w.Hosts()[from])
	return nil
}

// decision is the message of rank 0 to the others before a run.
type decision struct {
	Chain   *chain.Chain
	Plan    *pipeline.Plan  // nil: there is nothing to do
	Choices json.RawMessage `json:",omitempty"` // of algorithms, with those that the plan has brought
}

// tell tells the other processes what was planned.
func tell(ctx context.Context, r *train.Run) error {
	if r.World == nil {
		return nil
	}
	d := decision{Chain: r.Chain, Choices: r.Job.Kernels.Choices}
	if r.Plan != nil {
		d.Plan = r.Plan.Plan
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	_, err = r.World.Broadcast(ctx, 0, text)
	return err
}

// told takes what rank 0 has planned. done reports that there is nothing to do.
func (c *trainCommand) told(ctx context.Context, r *train.Run) (done bool, err error) {
	text, err := r.World.Broadcast(ctx, 0, nil)
	if err != nil {
		return false, err
	}
	var p decision
	if err := json.Unmarshal(text, &p); err != nil {
		return false, fmt.Errorf("the plan of rank 0: %w", err)
	}
	if p.Plan == nil {
		return true, nil
	}
	r.Job.Kernels.Choices = p.Choices
	if r.Plan, err = r.Job.PipeOf("the plan of rank 0", p.Plan, p.Chain, c.pipe.Corrections); err != nil {
		return false, err
	}
	r.Chain, r.Plan.Patience = p.Chain, c.pipe.patience
	if c.keep.resume {
		err = resumeTogether(r)
	}
	r.Whole()
	return false, err
}

// resumeTogether makes a process other than rank 0 go on from what all have; where that is nothing, rank 0 says whether the run begins.
func resumeTogether(r *train.Run) error {
	c, _, err := r.World.Latest(r.Saves.Dir)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = r.Resume(c); err != nil {
		err = firstOf(err, c.Close())
	}
	return err
}

// agree compares what was asked of all processes.
func (c *trainCommand) agree(ctx context.Context, r *train.Run) error {
	alike, err := fieldsOf(r.File().Settings)
	if err != nil {
		return err
	}
	start := ""
	if c.init != "" {
		if start, err = hashOf(os.DirFS(filepath.Dir(c.init)), filepath.Base(c.init)); err != nil {
			return usage(fmt.Errorf("--init: %w", err))
		}
	}
	maps.Copy(alike, map[string]string{
		"--steps": strconv.Itoa(c.steps), "--eval-every": strconv.Itoa(c.eval), "--checkpoint-every": strconv.Itoa(c.keep.every),
		"--option world.allreduce": c.pipe.allreduce, "--strategy": c.strategy, "--memory": c.memory.String(), "--plan": c.pipe.given.hash(), "--init": start,
		"training samples": strconv.FormatInt(r.Job.Set.TrainLen(), 10),
	})
	return r.World.Agree(ctx, alike)
}

// fieldsOf returns the settings of a run by name.
func fieldsOf(m checkpoint.Meta) (map[string]string, error) {
	extra := m.Extra
	m.Extra = nil
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for name, value := range list {
		all[name] = string(value)
	}
	maps.Copy(all, extra)
	return all, nil
}
