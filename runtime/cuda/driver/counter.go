//go:build cuda && linux && amd64

package driver

// #include <stdint.h>
// #include <unistd.h>
// #include "cuda.h"
//
// static void add_one(void *counter) {
//     uint64_t one = 1;
//     ssize_t n = write((int)(intptr_t)counter, &one, sizeof one);
//     (void)n; // it does not fail below 2^64
// }
// static CUresult launch_add(CUstream stream, int counter) { return cuLaunchHostFunc(stream, add_one, (void *)(intptr_t)counter); }
import "C"

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
	"gorgonia.org/cu"
)

// Counter counts: streams add to it and a goroutine waits for it. It is an eventfd, so that no loop polls memory and no thread waits.
type Counter struct {
	fd   int
	file *os.File
	word [8]byte
}

// NewCounter returns one.
func NewCounter() (*Counter, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &Counter{fd: fd, file: os.NewFile(uintptr(fd), "counter")}, nil
}

// Add has a stream add one when it comes to that. The counter is not closed before.
func (c *Counter) Add(s cu.Stream) error { return result(C.launch_add(stream(s), C.int(c.fd))) }

// Wait waits until something was added, and returns how much since the last Wait. Errors: os.ErrClosed.
func (c *Counter) Wait() (uint32, error) {
	_, err := c.file.Read(c.word[:])
	return uint32(binary.NativeEndian.Uint64(c.word[:])), err
}

// Close makes Wait fail.
func (c *Counter) Close() error { return c.file.Close() }
