package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"plimsoll/executor/checkpoint"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/mpi"
	"plimsoll/runtime/world/tcp"
)

// worldFlags are the flags of commands that run in several processes.
type worldFlags struct {
	size                        string
	rank                        int
	master, secret, transport   string
	certificate, key, authority string
	timeout, patience           time.Duration
}

func (f *worldFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.size, "world", "", "run in so many processes, each with its own --devices, or auto: as many as the launcher has started (see plimsoll launch)")
	s.IntVar(&f.rank, "rank", -1, "number of this process, from 0 (default: the launcher's)")
	s.StringVar(&f.master, "master", "", "host and port where rank 0 listens, as in node0:29500 (default: the launcher's)")
	s.Var(newOneOf(&f.transport, "tcp", "mpi"), "transport", "what moves tensors between processes: tcp, or mpi under mpiexec, by a library with the standard ABI of MPI 5.0")
	s.StringVar(&f.secret, "secret-file", "", "file with the secret that all processes share (default: $PLIMSOLL_SECRET; without one they are on one machine)")
	s.StringVar(&f.certificate, "tls-certificate", "", "certificate of this process, PEM, with --tls-key and --tls-ca (default: keys made of the secret)")
	s.StringVar(&f.key, "tls-key", "", "its private key, PEM")
	s.StringVar(&f.authority, "tls-ca", "", "certificate of who has signed those of all processes, PEM")
	s.DurationVar(&f.timeout, "rendezvous-timeout", 2*time.Minute, "how long processes wait for each other at the beginning")
	s.DurationVar(&f.patience, "lost-after", 10*time.Second, "a process that says nothing for so long is lost, and the run with it")
}

// processOnly are the flags that mean nothing in one process.
var processOnly = []string{"rank", "master", "transport", "secret-file", "tls-certificate", "tls-key", "tls-ca", "rendezvous-timeout", "lost-after"}

// identity returns who this process is.
func (f *worldFlags) identity() (id world.Identity, err error) {
	given := world.Identity{Rank: f.rank, LocalRank: -1, Address: f.master}
	if f.size != "auto" {
		if given.Size, err = strconv.Atoi(f.size); err != nil || given.Size < 1 {
			return id, usage(fmt.Errorf("--world is %q: give the number of processes, or auto for as many as the launcher has started", f.size))
		}
	}
	id, ok, err := world.Identify(given, os.Getenv)
	switch {
	case err != nil:
		return id, usage(err)
	case !ok:
		return id, usage(fmt.Errorf("--world %s: nobody says which process this is: start it with plimsoll launch, torchrun, srun or mpiexec, or give --rank and --master", f.size))
	}
	return id, nil
}

// sharedSecret returns the secret of all processes; none where neither a file nor the environment has one.
func (f *worldFlags) sharedSecret() ([]byte, error) {
	if f.secret == "" {
		return []byte(os.Getenv("PLIMSOLL_SECRET")), nil
	}
	b, err := os.ReadFile(f.secret)
	if b = bytes.TrimRight(b, "\r\n"); err == nil && len(b) == 0 {
		err = fmt.Errorf("--secret-file %s is empty: it holds the secret of all processes", f.secret)
	}
	return b, usage(err)
}

// join meets the other processes; nil where the run is of one.
func (f *worldFlags) join(ctx context.Context, a *app, devices int) (*train.World, error) {
	if f.size == "" {
		return nil, nil
	}
	id, err := f.identity()
	if err != nil {
		return nil, err
	}
	secret, err := f.sharedSecret()
	if err != nil {
		return nil, err
	}
	program, err := programHash()
	if err != nil {
		return nil, err
	}
	if id.Size == 1 {
		return nil, nil
	}
	fabric, err := f.fabric()
	if err != nil {
		return nil, usage(err)
	}
	doing := &train.Doing{}
	if id.Rank == 0 {
		a.note("rank 0 waits at %s for %s", id.Address, units.Count(id.Size-1, "other rank"))
	}
	w, err := world.Join(ctx, world.Options{
		Identity: id, Secret: secret, Certificate: f.certificate, Key: f.key, CA: f.authority, Timeout: f.timeout, Patience: f.patience, Heartbeat: f.patience / 10,
		Agree: map[string]string{"program": program, "--transport": f.transport}, Status: doing.String,
	})
	if err != nil {
		return nil, err
	}
	if a.rank = id.Rank; a.rank > 0 { // rank 0 speaks for all
		a.quiet = true
	}
	return train.NewWorld(ctx, w, fabric(w), devices, doing)
}

// fabric returns what makes the fabric of a world.
func (f *worldFlags) fabric() (func(*world.World) world.Fabric, error) {
	if f.transport == "mpi" {
		return mpi.Load()
	}
	return tcp.New, nil
}

// check refuses flags of several processes for one.
func (f *worldFlags) check(cmd *cobra.Command) error {
	if f.size != "" {
		return nil
	}
	return refuse(cmd, "is for several processes: give their number, as in --world 4, or --world auto", processOnly...)
}

// within does something together with the other processes, which each have some devices; alone, with nil, where there are none.
func (f *worldFlags) within(ctx context.Context, a *app, spec string, do func(*train.World) error) error {
	n, err := countDevices(spec)
	if err != nil {
		return err
	}
	w, err := f.join(ctx, a, n)
	if err != nil {
		return err
	}
	return leave(ctx, w, do(w))
}

// programHash tells programs apart.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), firstOf(err, file.Close())
}

// leave ends the world of a run: with the others at its good end, else it tells them why.
func leave(ctx context.Context, w *train.World, err error) error {
	switch {
	case w == nil:
		return err
	case err != nil && !errors.Is(err, train.ErrInterrupted):
		w.Fail(err)
		return err
	}
	return firstOf(err, w.Leave(context.WithoutCancel(ctx)))
}

// follow says what a process other than rank 0 keeps of a run: the shards of its stages.
func (f *keepFlags) follow() (train.Saves, error) {
	if f.out.path == "" {
		return train.Saves{}, nil
	}
	dir := checkpoint.NewDir(filepath.Join(f.out.path, checkpoints), f.keep)
	steps, err := dir.Steps()
	if err == nil && len(steps) > 0 && !f.resume && !f.force {
		err = usage(fmt.Errorf("--out %s holds checkpoints of a run: go on with it with --resume, begin anew with --force, or give another folder", f.out.path))
	}
	return train.Saves{Dir: dir, Every: f.every}, err
}

// decision is what rank 0 tells the others before a run.
type decision struct {
	Chain *chain.Chain
	Plan  *pipeline.Plan // nil: there is nothing to do
}

// tell tells the other processes what was planned.
func (a *app) tell(ctx context.Context, r *train.Run) error {
	if r.World == nil {
		return nil
	}
	p := decision{Chain: r.Chain}
	if r.Pipe != nil {
		p.Plan = r.Pipe.Plan
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = r.World.Broadcast(ctx, 0, text)
	return err
}

// told takes what rank 0 has planned. done reports that there is nothing to do.
func (a *app) told(ctx context.Context, f *trainFlags, r *train.Run) (done bool, err error) {
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
	if r.Pipe, err = r.Job.PipeOf("the plan of rank 0", p.Plan, p.Chain, f.pipe.Corrections); err != nil {
		return false, err
	}
	r.Chain, r.Limit, r.Pipe.Patience = p.Chain, r.Pipe.Limit, f.pipe.patience
	if f.keep.resume {
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
func (f *trainFlags) agree(ctx context.Context, r *train.Run) error {
	alike, err := fieldsOf(r.File().Settings)
	if err != nil {
		return err
	}
	maps.Copy(alike, map[string]string{
		"--steps": strconv.Itoa(f.steps), "--eval-every": strconv.Itoa(f.eval), "--checkpoint-every": strconv.Itoa(f.keep.every),
		"--out given": strconv.FormatBool(f.keep.out.path != ""), "--resume": strconv.FormatBool(f.keep.resume), "--force": strconv.FormatBool(f.keep.force), "--plan": f.pipe.given.hash(), "training samples": strconv.FormatInt(r.Job.Set.TrainLen(), 10),
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
