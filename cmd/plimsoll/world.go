package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"plimsoll/executor/train"
)

// processOnly are the flags that mean nothing in one process.
var processOnly = []string{
	"world.rank", "world.master", "transport", "world.allreduce", "world.secret-file", "world.tls-certificate", "world.tls-key", "world.tls-ca",
	"world.rendezvous-timeout", "world.lost-after",
}

// beside lets streams of a GPU run beside one that waits for a message, where nobody has said otherwise. By default some share a queue
// of the hardware, and a kernel that is loaded when it is first launched waits for all streams (CUDA's programming guide, lazy loading).
func beside() {
	for name, value := range map[string]string{"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, value) // the names are some
		}
	}
}

// programHash tells programs apart.
func programHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	return hashOf(os.DirFS(filepath.Dir(path)), filepath.Base(path))
}

// hashOf tells files apart, and folders with their files.
func hashOf(in fs.FS, path string) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(in, path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		file, err := in.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, file)
		return firstOf(err, file.Close())
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}

// leave ends the world of a run: with the others at its good end, else it tells them why.
func leave(ctx context.Context, w *train.World, err error) error {
	switch {
	case w == nil:
		return err
	case err != nil && !errors.Is(err, train.ErrInterrupted):
		said := err
		if errors.Is(err, context.Canceled) {
			said = train.ErrInterrupted
		}
		w.Fail(said)
		return err
	}
	return firstOf(err, w.Leave(context.WithoutCancel(ctx)))
}
