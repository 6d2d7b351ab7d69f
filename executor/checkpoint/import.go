package checkpoint

import (
	"errors"
	"os"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/internal/folder"
)

// Import loads weights and buffers from a file with torchvision's names: one that Export or PyTorch wrote, or a
// checkpoint, whose other tensors it leaves. Before anything is loaded every name and shape is checked. batches are those that it
// counts (Batches.Before). Errors: *TensorsError, those of package safetensors and, for a checkpoint in shards, of Open.
func Import(path string, into Model) (batches map[string]int64, err error) {
	files, err := openFiles(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeFiles(files)) }()
	if err := load(path, files, into, inference); err != nil {
		return nil, err
	}
	return counted(files)
}

// Fits reports why Import would refuse to load a file into a model, and how many tensors of the file it would leave out.
// Import leaves out the auxiliary classifier that torchvision's Inception v3 has for training. Errors: those of Import.
func Fits(path string, model []executor.Tensor) (auxiliary int, err error) {
	files, err := openFiles(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeFiles(files)) }()
	names, err := match(path, files, model, inference)
	for name := range names {
		if strings.HasPrefix(name, auxPrefix) {
			auxiliary++
		}
	}
	return auxiliary, ofSeveral(path, err)
}

// openFiles opens a file, or the shards in a folder.
func openFiles(path string) ([]*safetensors.File, error) {
	if isFolder(path) {
		if numbers, err := shardNumbers(folder.At(path)); err == nil && len(numbers) == 0 {
			return openForeign(path)
		}
		c, err := openShards(folder.At(path))
		if err != nil {
			return nil, err
		}
		return c.files, nil
	}
	if err := textFile(path); err != nil {
		return nil, err
	}
	f, err := safetensors.Open(path)
	return []*safetensors.File{f}, err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Open opens a checkpoint, a file or a folder of shards, and verifies it. Errors: ErrDamaged, ErrFormat, ErrIncomplete,
// safetensors.ErrFormat.
func Open(path string) (*Checkpoint, error) {
	if isFolder(path) {
		return openShards(folder.At(path))
	}
	return openWhole(safetensors.Open(path))
}

// About returns the metadata of a file of weights, or of the first shard of a checkpoint. Errors: those of Import.
func About(path string) (about map[string]string, err error) {
	files, err := openFiles(path)
	if err != nil || len(files) == 0 {
		return nil, err
	}
	return files[0].Metadata(), errors.Join(closeFiles(files))
}
