package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"plimsoll/internal/freeport"
	"plimsoll/internal/names"
)

const (
	// secretVariable has what all processes of a run know and nobody else.
	secretVariable = "PLIMSOLL_SECRET"
	// lastWords is how long the others may take to say why they end, too, before they are told to; --grace if that is shorter.
	lastWords = 3 * time.Second
	// longestLine is how many bytes of a line are kept until its end comes.
	longestLine = 64 << 10
)

func (a *app) launch() *cobra.Command {
	var n int
	var grace time.Duration
	c := &cobra.Command{
		Use:   "launch -n N [flags] -- command ...",
		Short: "Run a command in several processes on this machine",
		Long: `Run a command of plimsoll in several processes on this machine, as torchrun, srun and mpiexec do on many.

Each process is told who it is by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR (127.0.0.1) and MASTER_PORT (a free one), and gets a random
secret in PLIMSOLL_SECRET unless there is one. Standard output of rank 0 is that of launch, so that scripts can read it; everything
else goes to standard error, each line behind the number of its rank. SIGINT, SIGTERM and SIGHUP are passed on. When a process fails,
the others have 3 s to say that they end, too; then they get SIGTERM, and SIGKILL after --grace. The exit code is that of the first that
failed, 128 and the number of the signal if one ended it; or 2 or 3 where another one then says that it is the input, or does not fit.`,
		Example: `  plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 100`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case n < 1 || n > mostProcesses:
				return usage(fmt.Errorf("-n %d: give a number of processes from 1 to %d", n, mostProcesses))
			case grace < 0:
				return usage(fmt.Errorf("--grace is %v: give a time, as in 30s", grace))
			}
			return launchable(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.launchAll(cmd.Context(), n, grace, args) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return commandNames(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().SetInterspersed(false) // what follows the command's name is its own
	c.Flags().IntVarP(&n, "processes", "n", 0, "processes")
	c.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long processes may take to end when they are told to, before they are killed")
	return c
}

// mostProcesses on one machine is beyond what has that many devices.
const mostProcesses = 1024

// launchable says whether a command line can be started in several processes.
func launchable(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage(errors.New("give the command to start, as in: plimsoll launch -n 4 -- train -m resnet20"))
	}
	found, _, err := cmd.Root().Find(args)
	if err != nil || found == cmd.Root() {
		return usage(names.Unknown(errCommand, args[0], commandNames(cmd.Root())))
	}
	if found == cmd {
		return usage(errors.New("launch starts other commands, not itself"))
	}
	return nil
}

// launchedError says which process ended without success, first.
type launchedError struct {
	rank int
	code int // exit code; 128 and its number after a signal
	how  string
}

func (e *launchedError) Error() string { return fmt.Sprintf("rank %d %s", e.rank, e.how) }

// launched is processes that run.
type launched struct {
	all     []*exec.Cmd
	running []bool
	ended   chan int // ranks
	errs    []error  // of those that have ended
}

// launchAll starts n processes and waits for all.
func (a *app) launchAll(ctx context.Context, n int, grace time.Duration, args []string) error {
	runtime.LockOSThread() // processes end with the thread that started them, where the system can do that
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup leaves it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	port, release, err := freeport.Reserve()
	if err != nil {
		return err
	}
	defer release()
	l := &launched{ended: make(chan int), errs: make([]error, n)}
	err = a.startAll(l, meeting(n, port), n, grace, args)
	if err != nil {
		l.signal(os.Kill)
	}
	return firstOf(err, l.wait(ctx, signals, grace, l.signal))
}

// startAll starts the processes; those that have started when one cannot be are in l.
func (a *app) startAll(l *launched, variables []string, n int, grace time.Duration, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for rank := range n {
		c := exec.Command(self, args...)
		c.Env = append(append(os.Environ(), variables...), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		c.SysProcAttr, c.WaitDelay = ofParent(), grace
		said := []*lines{{to: a.err, prefix: fmt.Sprintf("[%d] ", rank)}, {to: a.err, prefix: fmt.Sprintf("[%d] ", rank)}}
		if rank == 0 {
			said[0] = &lines{to: a.out}
		}
		c.Stdout, c.Stderr = said[0], said[1]
		if err := c.Start(); err != nil {
			return fmt.Errorf("rank %d of %d does not start: %w", rank, n, err)
		}
		l.all, l.running = append(l.all, c), append(l.running, true)
		go func() {
			l.errs[rank] = c.Wait()
			for _, s := range said {
				s.flush()
			}
			l.ended <- rank
		}()
	}
	return nil
}

// meeting returns the variables that all processes have in common.
func meeting(n, port int) []string {
	all := []string{
		fmt.Sprintf("WORLD_SIZE=%d", n), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", n), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port),
		"TORCHELASTIC_USE_AGENT_STORE=", // of a torchrun that has started this command
	}
	if os.Getenv(secretVariable) == "" {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // it never fails
		all = append(all, secretVariable+"="+hex.EncodeToString(secret))
	}
	return all
}

// wait waits for all processes, passes signals on, and ends the rest when one has failed.
func (l *launched) wait(ctx context.Context, signals <-chan os.Signal, grace time.Duration, pass func(os.Signal)) error {
	var first *launchedError
	var next <-chan time.Time // when the rest is told more firmly
	firmly := []os.Signal{syscall.SIGTERM, os.Kill}
	done := ctx.Done()
	for left := len(l.all); left > 0; {
		select {
		case rank := <-l.ended:
			left--
			l.running[rank] = false
			err := failed(rank, l.all[rank], l.errs[rank])
			switch {
			case err == nil:
			case first == nil:
				first, next = err, time.After(min(grace, lastWords))
			case first.code == exitFailed && (err.code == exitUsage || err.code == exitNoFit):
				first = err // the others have failed because of it
			}
		case s := <-signals:
			done = nil // the signal has ended that, too, and is passed on once
			pass(s)
		case <-done:
			done = nil
			pass(whichSignal(signals))
		case <-next:
			pass(firmly[0])
			if firmly = firmly[1:]; len(firmly) > 0 {
				next = time.After(grace)
			}
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// whichSignal returns the signal that ended the context: SIGTERM when it was none.
func whichSignal(signals <-chan os.Signal) os.Signal {
	select {
	case s := <-signals:
		return s
	case <-time.After(oneSignal / 5):
		return syscall.SIGTERM
	}
}

// signal sends a signal to all that run; where the system has only one, that.
func (l *launched) signal(s os.Signal) {
	for rank, c := range l.all {
		if !l.running[rank] {
			continue
		}
		if err := c.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			_ = c.Process.Kill() // it may have ended meanwhile
		}
	}
}

// failed says how a process that has ended did, nil when well.
func failed(rank int, c *exec.Cmd, err error) *launchedError {
	if err == nil {
		return nil
	}
	e := &launchedError{rank: rank, code: exitFailed, how: "failed: " + err.Error()}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		return e
	}
	e.code, e.how = c.ProcessState.ExitCode(), fmt.Sprintf("ended with exit code %d", c.ProcessState.ExitCode())
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.code, e.how = 128+int(status.Signal()), fmt.Sprintf("was ended by signal %d (%v)", status.Signal(), status.Signal())
	}
	return e
}

// lines passes on whole lines, each behind a prefix. Without one, it passes on what comes in whole characters.
type lines struct {
	to     io.Writer
	prefix string
	kept   []byte // without a line's end
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	l.kept = append(l.kept, p...)
	for len(l.kept) > 0 {
		at := bytes.IndexByte(l.kept, '\n') + 1
		if at == 0 && len(l.kept) < longestLine {
			break
		}
		if at == 0 || at > longestLine {
			at = wholeCharacters(l.kept[:longestLine])
		}
		l.pass(l.kept[:at])
		l.kept = l.kept[at:]
	}
	return n, nil
}

// wholeCharacters returns how many bytes are before a character that is cut at the end.
func wholeCharacters(p []byte) int {
	for n := len(p) - 1; n >= len(p)-utf8.UTFMax; n-- {
		if utf8.RuneStart(p[n]) {
			if utf8.FullRune(p[n:]) {
				break
			}
			return n
		}
	}
	return len(p)
}

// pass writes one line; a part of one that is too long has its own end, where there are prefixes.
func (l *lines) pass(line []byte) {
	if l.prefix != "" {
		line = append([]byte(l.prefix), line...)
		if line[len(line)-1] != '\n' {
			line = append(line, '\n')
		}
	}
	_, _ = l.to.Write(line) // a stream, which keeps its error: the process goes on, as it would without launch
}

// flush passes on what has no line's end; its writer is gone.
func (l *lines) flush() {
	if len(l.kept) > 0 {
		l.pass(l.kept)
		l.kept = nil
	}
}
