package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"plimsoll/executor/train"
	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
)

// trainingFlags are the flags of commands that measure a model, plan its step and train it.
type trainingFlags struct {
	job     jobFlags
	rate    rateFlags
	how     measureFlags
	options strategyFlags
	link    linkFlags
	cache   cacheFlags
}

func (f *trainingFlags) register(a *app, cmd *cobra.Command) {
	f.job.register(a, cmd)
	f.rate.register(cmd)
	f.how.register(cmd)
	f.options.register(cmd)
	f.options.registerTolerance(cmd)
	f.link.register(cmd)
	f.cache.register(cmd)
}

// chain returns the measured chain of a job, with the link that plans may use.
func (f *trainingFlags) chain(ctx context.Context, a *app, job *train.Job, m train.Measure) (*chain.Chain, error) {
	c, err := f.cache.measured(ctx, a, job, m)
	if err != nil {
		return nil, err
	}
	return f.link.chain(c)
}

// cacheFlags say where the measured chain is from.
type cacheFlags struct {
	file string
	none bool
}

func (f *cacheFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "profile", "", "chain file of this model (default: measured once, and kept)")
	optionsOf(cmd).BoolVar(&f.none, "profile.no-cache", false, "")
}

// measured returns the chain of a job: that of the file, or one that is kept, or else it is measured.
func (f *cacheFlags) measured(ctx context.Context, a *app, job *train.Job, m train.Measure) (*chain.Chain, error) {
	if f.file != "" {
		c, err := job.ReadChain(f.file)
		if errors.Is(err, train.ErrOtherModel) && job.Images() > job.Config.Batch {
			err = fmt.Errorf("%w; --batch %d is divided into %d parts: the chain is that of %s", err, job.Images(), job.Images()/job.Config.Batch, job.Samples(job.Config.Batch))
		}
		return c, usage(err)
	}
	folder, err := profilesFolder()
	if f.none || err != nil { // a user without a home has no cache
		a.note("measuring %s", job.Model)
		return job.Profile(ctx, m)
	}
	c, hit, err := train.ChainCache{Folder: folder}.Measure(ctx, job, m)
	if hit {
		a.note("measured before: %s (--option profile.no-cache measures again)", job.Model)
	}
	if errors.Is(err, train.ErrNotKept) {
		a.note("%v", err)
		err = nil
	}
	return c, err
}

// onProcessors returns a platform with how many ops the job's devices run at once where they share processors; see train.OnProcessors. Where the
// chain is that of a file, nothing is measured.
func (f *cacheFlags) onProcessors(ctx context.Context, p *pipeline.Platform, job *train.Job, m train.Measure) (*pipeline.Platform, error) {
	if f.file != "" {
		return train.OnProcessors(job, p, nil)
	}
	return train.OnProcessors(job, p, func(copies int) (*chain.Chain, error) {
		m.Halves, m.Together = false, copies
		folder, err := profilesFolder()
		if f.none || err != nil {
			return job.Profile(ctx, m)
		}
		c, _, err := train.ChainCache{Folder: folder}.Measure(ctx, job, m)
		if errors.Is(err, train.ErrNotKept) {
			err = nil // measured has said it
		}
		return c, err
	})
}

// profilesFolder is where measured chains are kept.
func profilesFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "plimsoll", "profiles"), err
}
