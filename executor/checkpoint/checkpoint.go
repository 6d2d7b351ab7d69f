// Package checkpoint keeps the state of a training run in safetensors files, and exchanges weights with PyTorch.
//
// A checkpoint is one file with weights and buffers as in torchvision's state_dict, optimizer states, and a checksum. Its header has
// everything else that the next step depends on; inputs are counted (seed, step, samples drawn), not saved. It does not depend on the plan,
// the limit or the layout of the arena, so a run goes on under another plan. Over several devices it is a folder of shards, one for each
// stage, saved without waiting for each other. Processes with disks of their own publish their shards (Published) and load what all have
// (Together). The package does not decide when to save.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

// Checkpoint is an open file, or an open folder of shards, that has been verified to the last byte.
type Checkpoint struct {
	Meta
	name  string
	files []*safetensors.File
	sums  []string // of a Part
}

// in opens a file of a folder. Errors: *safetensors.Error, folder.ErrForeign, those of the operating system.
func in(at *folder.Dir, name string) (*safetensors.File, error) {
	f, err := at.Open(name)
	if err != nil {
		return nil, err
	}
	return safetensors.Of(at.Path(name), f)
}

// openWhole verifies a file, which must be no shard.
func openWhole(f *safetensors.File, err error) (*Checkpoint, error) {
	c, err := openFile(f, err)
	if err != nil {
		return nil, err
	}
	if k, shard := c.Extra[shardField]; shard {
		err := fmt.Errorf("%s: %w: it is shard %s of %s: give its folder, %s", c.name, ErrFormat, k, c.Extra[shardsField], filepath.Dir(c.name))
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// openFile verifies one file; the fields of a shard stay among the extra ones. err is why it could not be opened.
func openFile(f *safetensors.File, err error) (*Checkpoint, error) {
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{name: f.Name(), files: []*safetensors.File{f}}
	if c.Meta, err = decodeMeta(f.Metadata()); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.name, err), f.Close())
	}
	if err := verify(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

// Restore loads everything that was saved; the tensors must be the model's, one to one. Before anything is loaded every
// name and shape is checked. Errors: *TensorsError, those of package safetensors.
func (c *Checkpoint) Restore(into Model) error {
	return c.advise(load(c.name, c.files, into, training))
}

// advise says what to do about a checkpoint that cannot be loaded.
func (c *Checkpoint) advise(err error) error {
	if errors.As(err, new(*TensorsError)) || errors.As(err, new(*safetensors.Error)) {
		return fmt.Errorf("%w: remove %s to go on from an earlier checkpoint", err, c.name)
	}
	return err
}

// Batches returns how many batches each BatchNorm had seen (Batches.Before). Errors: *safetensors.Error.
func (c *Checkpoint) Batches() (map[string]int64, error) { return counted(c.files) }

// Name returns the path of the file, or of the folder.
func (c *Checkpoint) Name() string { return c.name }

// Close closes the files.
func (c *Checkpoint) Close() error { return closeFiles(c.files) }

func closeFiles(files []*safetensors.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// verify compares a file with its checksum.
func verify(f *safetensors.File) error {
	if all := f.Tensors(); len(all) == 0 || all[len(all)-1].Name != sumName {
		return fmt.Errorf("%s: %w: its last tensor is not %q", f.Name(), ErrFormat, sumName)
	}
	before, sum, err := f.Last(sha256.Size)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, before); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	if got := h.Sum(nil); !bytes.Equal(got, sum) {
		return fmt.Errorf("%s: %w: its checksum is %x, that of its bytes %x", f.Name(), ErrDamaged, sum, got)
	}
	return nil
}
