package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// launchFlags are the flags of plimsoll launch.
type launchFlags struct {
	n     int
	grace time.Duration
}

func (a *app) launch() *cobra.Command {
	f := &launchFlags{}
	cmd := &cobra.Command{
		Use:   "launch -n N [flags] -- COMMAND [ARG...]",
		Short: "Run a command in several processes on this machine",
		Long: `Run a command of plimsoll in several processes on this machine, as torchrun, srun and mpiexec do on many.

Each process is told who it is by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and gets a secret in PLIMSOLL_SECRET unless
there is one. Standard output of rank 0 is that of launch; everything else goes to standard error, each line behind the number of its
rank. Ctrl-C, SIGTERM and SIGHUP are passed on. When a process fails all others are ended, and the exit code is that of the first that
failed.`,
		Example: `  plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 100`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
				return usage(errors.New("give the command behind --, as in plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runLaunch(cmd.Context(), f, args) },
	}
	cmd.Flags().IntVarP(&f.n, "processes", "n", 2, "processes")
	cmd.Flags().DurationVar(&f.grace, "grace", 30*time.Second, "how long processes may take to end when another one has failed, before they are killed")
	return cmd
}

// most processes that launch starts.
const mostProcesses = 1024

func (a *app) runLaunch(ctx context.Context, f *launchFlags, args []string) error {
	if f.n < 1 || f.n > mostProcesses {
		return usage(fmt.Errorf("-n is %d: give a number of processes from 1 to %d", f.n, mostProcesses))
	}
	if f.grace < 0 {
		return usage(fmt.Errorf("--grace is %v: give a time, as in 30s", f.grace))
	}
	l := &launched{app: a, grace: f.grace, failed: make(chan struct{})}
	if err := l.start(f.n, args); err != nil {
		return err
	}
	return l.wait(ctx)
}

// launched are the processes of a launch.
type launched struct {
	app    *app
	grace  time.Duration
	all    []*exec.Cmd
	failed chan struct{} // closed with the first failure
	once   sync.Once
	first  error
}

// start starts all processes; none is left where one cannot be started.
func (l *launched) start(n int, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	secret := cmp.Or(os.Getenv("PLIMSOLL_SECRET"), rand.Text())
	for rank := range n {
		c := exec.Command(self, args...)
		c.Env = append(os.Environ(), "PLIMSOLL_SECRET="+secret, "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(rank),
			"WORLD_SIZE="+strconv.Itoa(n), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+strconv.Itoa(port))
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C comes by us alone, once
		errs := &linePrefix{w: l.app.err, prefix: fmt.Sprintf("[%d] ", rank)}
		c.Stderr = errs
		if c.Stdout = l.app.out; rank > 0 {
			c.Stdout = errs
		}
		if err := c.Start(); err != nil {
			l.signal(syscall.SIGKILL)
			return err
		}
		l.all = append(l.all, c)
	}
	return nil
}

// freePort returns a port of this machine on which nobody listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// wait waits for all processes, passes signals on, and ends those that are left when one has failed.
func (l *launched) wait(ctx context.Context) error {
	over := make(chan struct{})
	go l.watch(ctx, over)
	var all sync.WaitGroup
	for rank, c := range l.all {
		all.Go(func() {
			err := c.Wait()
			if p, ok := c.Stderr.(*linePrefix); ok {
				p.flush()
			}
			if err != nil {
				l.fail(rank, err)
			}
		})
	}
	all.Wait()
	close(over)
	return l.first
}

// toldWithin is how long processes have to end because they are told that another one has failed, and to say so.
const toldWithin = 3 * time.Second

// fail notes the first failure.
func (l *launched) fail(rank int, err error) {
	l.once.Do(func() {
		code := exitFailed
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			if code = exit.ExitCode(); code < 0 {
				code = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
			}
		}
		l.first = &processError{rank: rank, code: code, err: err}
		close(l.failed)
	})
}

// watch passes on what ctx was ended by, and later signals, and ends all processes when one has failed.
func (l *launched) watch(ctx context.Context, over <-chan struct{}) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(again)
	asked, failed := ctx.Done(), (<-chan struct{})(l.failed)
	var end, kill <-chan time.Time
	for {
		select {
		case <-over:
			return
		case <-asked: // by a signal that is not among those of again
			asked = nil
			l.signal(syscall.SIGINT)
		case s := <-again:
			l.signal(s)
		case <-failed:
			failed = nil // what is closed would come for ever
			end, kill = time.After(min(l.grace, toldWithin)), time.After(l.grace)
		case <-end:
			l.signal(syscall.SIGTERM)
		case <-kill:
			l.signal(syscall.SIGKILL)
		}
	}
}

// signal sends a signal to all processes; those that have ended do not mind.
func (l *launched) signal(s os.Signal) {
	for _, c := range l.all {
		_ = c.Process.Signal(s)
	}
}

// processError says which process has failed. The exit code is its own.
type processError struct {
	rank, code int
	err        error
}

func (e *processError) Error() string {
	return fmt.Sprintf("rank %d has failed: %v", e.rank, e.err)
}

func (e *processError) Unwrap() error { return e.err }

// longestLine bounds what is kept of a line that does not end.
const longestLine = 64 << 10

// linePrefix writes whole lines behind a prefix.
type linePrefix struct {
	w      io.Writer
	prefix string
	mu     sync.Mutex
	line   []byte
}

func (p *linePrefix) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = append(p.line, b...)
	for {
		n := bytes.IndexAny(p.line, "\n\r") + 1
		if n == 0 && len(p.line) < longestLine {
			return len(b), nil
		}
		if n == 0 {
			n = longestLine
		}
		if err := p.put(p.line[:n]); err != nil {
			return 0, err
		}
		p.line = p.line[:copy(p.line, p.line[n:])]
	}
}

func (p *linePrefix) put(line []byte) error {
	_, err := p.w.Write(append([]byte(p.prefix), append(bytes.TrimRight(line, "\r\n"), '\n')...))
	return err
}

// flush writes what is left of a line that has not ended.
func (p *linePrefix) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) > 0 {
		_ = p.put(p.line) // standard error keeps its first error
		p.line = nil
	}
}
