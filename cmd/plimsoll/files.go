package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"plimsoll/internal/folder"
)

// writable refuses a file that cannot be written, before any work is done for it.
func writable(flag, path string) error {
	switch path {
	case "":
		return nil
	case "-":
		return usage(fmt.Errorf("%s -: results are written to files: standard output is %s /dev/stdout", flag, flag))
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return usage(fmt.Errorf("%s %s: there is no folder %s", flag, path, dir))
	case !info.IsDir():
		return usage(fmt.Errorf("%s %s: %s is not a folder", flag, path, dir))
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return usage(fmt.Errorf("%s %s: it is a folder", flag, path))
	case err == nil && !info.Mode().IsRegular(): // a device, or a pipe
		return nil
	}
	if err := takesFiles(dir); err != nil {
		return usage(fmt.Errorf("%s %s: %w: give another folder", flag, path, err))
	}
	return nil
}

// takesFiles makes a file in a folder, and removes it.
func takesFiles(dir string) error {
	f, err := os.CreateTemp(dir, ".plimsoll-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// output is a file that a flag names; its path may be "".
type output struct{ flag, path string }

// allWritable is writable for the files of one command, which are not those that it reads and are not each other.
func allWritable(chain string, outputs ...output) error {
	named := map[string]string{filepath.Clean(chain): "--chain"}
	for _, o := range outputs {
		if o.path == "" {
			continue
		}
		if err := writable(o.flag, o.path); err != nil {
			return err
		}
		path := filepath.Clean(o.path)
		if other := named[path]; other != "" {
			return usage(fmt.Errorf("%s %s: that is %s's file, too: give another", o.flag, o.path, other))
		}
		named[path] = o.flag
	}
	return nil
}

// outFlags say where results go.
type outFlags struct {
	path string
	wait bool
}

func (f *outFlags) register(cmd *cobra.Command, path, usage string) {
	cmd.Flags().StringVar(&f.path, "out", path, usage)
	optionsOf(cmd).BoolVar(&f.wait, "out.wait", false, "")
}

// open makes the folder of --out, which is this run's alone until it is closed; nil without --out. The run of one process is "".
func (f *outFlags) open(ctx context.Context, a *app, run string) (*folder.Folder, error) {
	if f.path == "" {
		return nil, nil
	}
	out, err := f.take(ctx, a, run)
	if busy := (*folder.BusyError)(nil); errors.As(err, &busy) {
		return nil, usage(fmt.Errorf("--out %w: give another folder, or wait for it with --option out.wait", err))
	}
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, usage(fmt.Errorf("--out %s: %w", f.path, err))
	case err != nil:
		return nil, err
	case out.Unlocked:
		a.note("--out %s: its file system has no locks: nothing keeps a second process out", f.path)
	case out.Left != nil && out.Left.Here():
		a.note("--out %s was left by %v, which has ended: taken over", f.path, out.Left)
	case out.Left != nil:
		a.note("--out %s was left by %v: taken over; on a network file system whose locks are local, make sure that it has ended", f.path, out.Left)
	}
	return out, nil
}

func (f *outFlags) take(ctx context.Context, a *app, run string) (*folder.Folder, error) {
	if !f.wait {
		return folder.Open(f.path, run)
	}
	return folder.Wait(ctx, f.path, run, func(by folder.Holder) { a.note("--out %s is used by %v: waiting", f.path, by) })
}

// required refuses an empty flag.
func required(flag, value, example string) error {
	if value == "" {
		return usage(fmt.Errorf("%s is missing: give it, as in %s", flag, example))
	}
	return nil
}
