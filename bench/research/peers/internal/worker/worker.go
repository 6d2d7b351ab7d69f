// Package worker asks a Python program of bench/research/peers/src one line after the other.
package worker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Worker is a program that answers each line with a line.
type Worker struct {
	in     io.WriteCloser
	out    *bufio.Scanner
	errors bytes.Buffer
}

// Start runs a script with the Python that PLIMSOLL_TORCH names, until the test ends. It skips the test where that is not set.
func Start(t *testing.T, script string) *Worker {
	t.Helper()
	python := os.Getenv("PLIMSOLL_TORCH")
	if python == "" {
		t.Skip("PLIMSOLL_TORCH names no Python with torch: make test-oracle does")
	}
	w, cmd := &Worker{}, exec.Command(python, script)
	cmd.Stderr = &w.errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.in, w.out = in, bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<20)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(in.Close(), cmd.Wait()) }) // its failures are those of its last line
	return w
}

// Ask gives the program a line, and returns its answer.
func (w *Worker) Ask(t *testing.T, line string) []byte {
	t.Helper()
	if _, err := fmt.Fprintln(w.in, line); err != nil || !w.out.Scan() {
		t.Fatalf("%s: %v: %s", line, err, w.errors.String())
	}
	return w.out.Bytes()
}
