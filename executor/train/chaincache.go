package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"plimsoll/executor/measure"
	"plimsoll/internal/cores"
	"plimsoll/internal/folder"
	"plimsoll/models"
	"plimsoll/planner/chain"
)

// ErrNotKept says that a measurement is there, but not in the cache.
var ErrNotKept = errors.New("the measurement is not kept")

// ChainCache is a folder in which measured chains are kept, each under a name of everything that its times depend on.
type ChainCache struct{ Folder string }

// Measure returns the chain of a job that is kept, or measures it and keeps it. hit says which. Errors: ErrNotKept, which comes with the
// chain, those of Profile.
func (k ChainCache) Measure(ctx context.Context, j *Job, m Measure) (c *chain.Chain, hit bool, err error) {
	// A cached file that cannot be read, or is not of this model, is measured again and replaced.
	if c, err := k.Kept(j, m); err == nil {
		return c, true, nil
	}
	paths, err := k.paths(j, m)
	if err != nil {
		return nil, false, err
	}
	if c, err = j.Profile(ctx, m); err != nil {
		return nil, false, err
	}
	at := folder.At(k.Folder)
	if err = at.Make(); err == nil {
		err = errors.Join(at.Write(filepath.Base(paths[len(paths)-1]), c.Encode), at.Tidy())
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return c, false, err
}

// Kept returns the chain that Measure has kept of a job. Errors: fs.ErrNotExist, those of ReadChain.
func (k ChainCache) Kept(j *Job, m Measure) (c *chain.Chain, err error) {
	paths, err := k.paths(j, m)
	for _, path := range paths {
		if c, err = j.ReadChain(path); err == nil {
			break
		}
	}
	return c, err
}

// paths returns where a measurement can be kept: of the model as a whole, or in windows where that has no room. The last
// one is where a new measurement goes.
func (k ChainCache) paths(j *Job, m Measure) (paths []string, err error) {
	limit := j.Device.Memory
	if m.Limit > 0 {
		limit = min(limit, m.Limit)
	}
	windows, err := measure.InWindows(j.Work, limit, m.Halves)
	if err != nil {
		return nil, err
	}
	for _, inWindows := range []bool{false, true} {
		if inWindows && !windows {
			break
		}
		key, err := keyOf(j, m, inWindows)
		if err != nil {
			return nil, err
		}
		paths = append(paths, filepath.Join(k.Folder, key+".json"))
	}
	return paths, nil
}

// keyOf names everything that a measured time depends on: the model and its sizes, the optimizer, the device, the
// threads, the way of measuring, and this very program.
func keyOf(j *Job, m Measure, inWindows bool) (string, error) {
	program, err := programHash()
	if err != nil {
		return "", err
	}
	key := struct {
		Model, Graph    string
		Config          any
		Update          string
		Device          string
		Library         string
		Threads, Cores  int
		Bandwidth       float64
		Warmup, Repeats int
		Enough          time.Duration
		Halves, Windows bool
		Together        int
		OwnCore         bool
		Program         string
	}{
		j.Model, graphHash(j.Work.Model), j.Config, fmt.Sprintf("%T%+v", j.Update, j.Update), j.Device.Model, j.library,
		j.Kernels.Threads, cores.Count(), j.Open.Bandwidth, m.Warmup, m.Repeats, m.Enough, m.Halves, inWindows, m.Together, j.Open.OwnCore, program,
	}
	text, err := json.Marshal(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return filepath.Base(j.Model) + "-" + hex.EncodeToString(sum[:12]), nil
}

// graphHash names what a model computes: the file of a name can change.
func graphHash(m *models.Model) string {
	sum := sha256.New()
	for _, l := range m.Layers {
		for i := range l.Nodes {
			fmt.Fprintf(sum, "%s %T%+v %v\n", l.Name, l.Nodes[i].Op, l.Nodes[i].Op, l.Nodes[i].In)
			for _, p := range l.Nodes[i].Params {
				fmt.Fprintln(sum, p.Trained)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// programHash identifies the running program by its bytes: another build may have other kernels.
var programHash = sync.OnceValues(hashProgram)

func hashProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, f.Close())
}
