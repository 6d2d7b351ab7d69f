package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"plimsoll/executor/train"
	"plimsoll/internal/units"
	"plimsoll/runtime/host"
	"plimsoll/runtime/world"
	"plimsoll/runtime/world/mpi"
	"plimsoll/runtime/world/nccl"
	"plimsoll/runtime/world/tcp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
	s, o := cmd.Flags(), optionsOf(cmd)
	s.StringVar(&f.size, "world", "", "processes of the run; auto: as many as were launched")
	o.IntVar(&f.rank, "world.rank", -1, "")
	o.StringVar(&f.master, "world.master", "", "")
	s.Var(newOneOf(&f.transport, "tcp", "mpi", "nccl"), "transport", "transport of tensors: tcp, mpi or nccl")
	o.StringVar(&f.secret, "world.secret-file", "", "")
	o.StringVar(&f.certificate, "world.tls-certificate", "", "")
	o.StringVar(&f.key, "world.tls-key", "", "")
	o.StringVar(&f.authority, "world.tls-ca", "", "")
	o.DurationVar(&f.timeout, "world.rendezvous-timeout", 2*time.Minute, "")
	o.DurationVar(&f.patience, "world.lost-after", 10*time.Second, "")
}

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
	case errors.Is(err, world.ErrNoRank):
		return id, usage(fmt.Errorf("%w: give --option world.rank", err))
	case errors.Is(err, world.ErrNoSize):
		return id, usage(fmt.Errorf("%w: give --world", err))
	case err != nil:
		return id, usage(err)
	case !ok:
		return id, usage(fmt.Errorf("--world %s: nobody says which process this is: start it with plimsoll launch, torchrun, srun or mpiexec, or give --option world.rank=R and world.master=HOST:PORT", f.size))
	}
	return id, nil
}

// sharedSecret returns the secret of all processes; none where neither a file nor the environment has one.
func (f *worldFlags) sharedSecret() ([]byte, error) {
	if f.secret == "" {
		return []byte(os.Getenv("PLIMSOLL_SECRET")), nil
	}
	if err := private("--option world.secret-file", f.secret); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(f.secret)
	if b = bytes.TrimRight(b, "\r\n"); err == nil && len(b) == 0 {
		err = fmt.Errorf("--option world.secret-file=%s is empty: it holds the secret of all processes", f.secret)
	}
	return b, usage(err)
}

// join meets the other processes; nil where the run is of one.
func (f *worldFlags) join(ctx context.Context, a *app, spec string) (*train.World, error) {
	devices, err := countDevices(spec)
	if err != nil {
		return nil, err
	}
	if f.size == "" {
		f.alone(a)
		return nil, nil
	}
	id, err := f.identity()
	if err != nil {
		return nil, err
	}
	secret, err := f.sharedSecret()
	if err = firstOf(err, private("--option world.tls-key", f.key)); err != nil {
		return nil, err
	}
	program, err := programHash()
	if err != nil {
		return nil, err
	}
	if id.Size == 1 {
		return nil, nil
	}
	transport, err := f.carry()
	if err != nil {
		return nil, usage(fmt.Errorf("%w, or use --transport tcp", err))
	}
	beside()
	if !strings.Contains(spec, "cuda") { // who launches kernels on a GPU is to have a core at once
		host.LongTurns()
	}
	doing := &train.Doing{}
	o := world.Options{
		Identity: id, Secret: secret, Certificate: f.certificate, Key: f.key, CA: f.authority, Timeout: f.timeout, Patience: f.patience, Heartbeat: f.patience / 10,
		Agree: map[string]string{"program": program, "--transport": f.transport}, Status: doing.String,
	}
	if id.Rank == 0 {
		a.note("rank 0 waits at %s for %s", id.Address, units.Count(id.Size-1, "other rank"))
		if who := o.Exposure(); who != "" {
			a.warn("the run has no secret: %s; give all processes one, as with: export PLIMSOLL_SECRET=$(openssl rand -hex 32)", who)
		}
	}
	w, err := world.Join(ctx, o)
	if err != nil {
		return nil, err
	}
	if a.rank = id.Rank; a.rank > 0 { // rank 0 speaks for all
		a.quiet = true
	}
	return train.NewWorld(ctx, w, transport(w), devices, doing)
}

// alone warns where a launcher has started several processes that do not know of each other.
func (f *worldFlags) alone(a *app) {
	id, ok, err := world.Identify(world.Identity{Rank: -1, LocalRank: -1, Address: "localhost:1"}, os.Getenv)
	if ok && err == nil && id.Size > 1 && id.Rank == 0 {
		a.warn("a launcher has started %d processes, and each works alone: give --world auto to let them work together", id.Size)
	}
}

// carry returns the function that makes the transport of a world.
func (f *worldFlags) carry() (func(*world.World) world.Transport, error) {
	switch f.transport {
	case "mpi":
		return mpi.Load()
	case "nccl":
		return nccl.Load()
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
	w, err := f.join(ctx, a, spec)
	if err != nil {
		return err
	}
	err = do(w)
	if errors.Is(err, world.ErrTransport) {
		err = fmt.Errorf("--devices %s and --transport %s: %w", spec, f.transport, err)
	}
	if err != nil {
		a.causes.report(err) // before the others know
	}
	return leave(ctx, w, err)
}
