package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// stream is where the program writes: standard output, standard error. It keeps the first error, which most writers pass over.
type stream struct {
	io.Writer
	failed func(error) // is told of it; may be nil

	mu  sync.Mutex
	err error
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.Writer.Write(p)
	if err != nil && s.err == nil {
		s.err = err
		if s.failed != nil {
			s.failed(err)
		}
	}
	return n, err
}

// lost returns an error when not all of what was written has arrived.
func (s *stream) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("standard output is lost: %w", s.err)
}

// terminal reports whether the stream is one.
func (s *stream) terminal() bool {
	f, ok := s.Writer.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width returns how many columns a terminal has, 0 where there is none.
func (s *stream) width() int {
	f, ok := s.Writer.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// oneSignal is how long what comes again is the same signal: timeout(1) sends its signal to the process and at once to its group.
const oneSignal = 500 * time.Millisecond

// untilSignal returns a context that ends with the first SIGINT, SIGTERM or SIGHUP, or when hangUp is told that nobody reads
// standard error. A second SIGINT or SIGTERM after oneSignal ends the program; SIGHUP comes twice when a terminal is closed, and under nohup it
// stays ignored. Writing to a closed pipe is an error like others, not a signal.
func untilSignal(ctx context.Context) (_ context.Context, hangUp func(error), stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	stopHangUps := func() {}
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, stopHangUps = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	ctx, stopEnds := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		time.Sleep(oneSignal)
		stopEnds()
	})
	hangUp = func(err error) {
		if errors.Is(err, syscall.EPIPE) {
			cancel()
		}
	}
	return ctx, hangUp, func() { stopHangUps(); cancel() } // which ends the others, too, after oneSignal
}
