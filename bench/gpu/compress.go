package main

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// window reaches over several programs, in bytes: most of their code is the same.
const window = 256 << 20

// compress writes in as one frame of Zstandard (RFC 8878).
func compress(in io.Reader, out io.Writer) error {
	w, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(window))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return errors.Join(err, w.Close())
}

// decompress writes what compress was given.
func decompress(in io.Reader, out io.Writer) error {
	r, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(out, r)
	return err
}
