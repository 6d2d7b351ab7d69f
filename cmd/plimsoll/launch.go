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
	"slices"
	"strconv"
	"strings"
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

// launchFlags say how processes are started and ended.
type launchFlags struct {
	n        int
	grace    time.Duration
	restarts int
}

func (a *app) launch() *cobra.Command {
	f := &launchFlags{}
	c := &cobra.Command{
		Use:   "launch -n N [flags] -- command ...",
		Short: "Run a command in several processes on this machine",
		Long: `Run a command of plimsoll in several processes on this machine, as torchrun, srun and mpiexec do on many.

Each process is told who it is by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR (127.0.0.1) and MASTER_PORT (a free one), and gets a random
secret in PLIMSOLL_SECRET unless there is one. Standard output of rank 0 is that of launch, so that scripts can read it; everything
else goes to standard error, each line behind the number of its rank. SIGINT, SIGTERM and SIGHUP are passed on.

When a process fails, the others have 3 s to say that they end, too; then they get SIGTERM, and SIGKILL after --grace. A process that the
others call silent gets SIGKILL at once. The exit code is that of the process that failed first, which the processes tell launch: 128 and
the number of the signal if one ended it, 1 if launch had to end it.

With --max-restarts N, all processes are started again after a failure, at most N times, with --resume and without --force; the command
needs --out. What would fail again is not started again: exit code 2 (flags or input) and 3 (it does not fit). Nor is anything after a
signal to launch. The exit code is that of the last start. Output goes on where it was: rank 0 prints its summary once, at the end.`,
		Example: `  plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 100
  plimsoll launch -n 4 --max-restarts 3 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 1000 --out runs/a --checkpoint-every 100`,
		Args: func(cmd *cobra.Command, args []string) error {
			return firstOf(f.check(), launchable(cmd, args), a.restartable(f.restarts, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.launchAll(cmd.Context(), f, args) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return commandNames(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().SetInterspersed(false) // what follows the command's name is its own
	c.Flags().IntVarP(&f.n, "processes", "n", 0, "processes")
	c.Flags().DurationVar(&f.grace, "grace", 30*time.Second, "how long processes may take to end when they are told to, before they are killed")
	c.Flags().IntVar(&f.restarts, "max-restarts", 0, "start all processes again with --resume when one has failed, at most so often")
	return c
}

func (f *launchFlags) check() error {
	switch {
	case f.n < 1 || f.n > mostProcesses:
		return usage(fmt.Errorf("-n %d: give a number of processes from 1 to %d", f.n, mostProcesses))
	case f.grace < 0:
		return usage(fmt.Errorf("--grace is %v: give a time, as in 30s", f.grace))
	case f.restarts < 0:
		return usage(fmt.Errorf("--max-restarts is %d: give how often processes may be started again, or 0 for never", f.restarts))
	}
	return nil
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

// restartable refuses a command that cannot go on with a run. Flags that are wrong are for the processes to refuse.
func (a *app) restartable(restarts int, args []string) error {
	if restarts == 0 {
		return nil
	}
	apart := &app{in: a.in, out: a.out, err: a.err} // its flags are not those of launch
	found, flags, err := apart.root().Find(args)
	if err != nil || found.ParseFlags(flags) != nil {
		return nil
	}
	if found.Flags().Lookup("resume") == nil || !found.Flags().Changed("out") {
		return usage(errors.New("--max-restarts starts a run again from its checkpoints: give a command with --resume and its --out, as in: plimsoll launch -n 4 --max-restarts 3 -- train --out runs/a"))
	}
	return nil
}

// resumed returns the command line that goes on with a run.
func resumed(args []string) []string {
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--force" || strings.HasPrefix(arg, "--force=") })
	return append(kept, "--resume")
}

// launchedError says which process failed first, and how.
type launchedError struct {
	rank int
	code int // exit code; 128 and its number after a signal
	how  string
}

func (e *launchedError) Error() string { return fmt.Sprintf("rank %d %s", e.rank, e.how) }

// final reports whether the processes would fail again.
func (e *launchedError) final() bool { return e.code == exitUsage || e.code == exitNoFit }

// member is one of the processes.
type member struct {
	*exec.Cmd
	rank    int
	causes  *os.File // of the process; nil where the system cannot hand it to another
	running bool
	ended   bool           // launch has ended it, since another one had failed
	err     *launchedError // nil while it runs, and when it ended well
	cause   cause          // when it failed, and who is to blame
}

// ending is the end of a process.
type ending struct {
	rank  int
	err   error
	cause *cause // nil: it gave none
}

// launched is processes that run.
type launched struct {
	all   []*member
	over  chan ending
	told  bool // launch has got a signal
	grace time.Duration
}

// launchAll starts the processes and waits for all, again and again when they fail and may be started again.
func (a *app) launchAll(ctx context.Context, f *launchFlags, args []string) error {
	runtime.LockOSThread() // processes end with the thread that started them, where the system can do that
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup leaves it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	for restart := 1; ; restart++ {
		told, err := a.launchOnce(ctx, signals, f, args)
		failure, ok := errors.AsType[*launchedError](err)
		if !ok || failure.final() || told || ctx.Err() != nil || restart > f.restarts {
			return err
		}
		a.warn("%v: all processes are started again with --resume (restart %d of %d)", failure, restart, f.restarts)
		if restart == 1 {
			args = resumed(args)
		}
	}
}

// launchOnce starts the processes and waits for all. told reports that launch has got a signal.
func (a *app) launchOnce(ctx context.Context, signals <-chan os.Signal, f *launchFlags, args []string) (told bool, err error) {
	port, release, err := freeport.Reserve()
	if err != nil {
		return false, err
	}
	defer release()
	l := &launched{over: make(chan ending), grace: f.grace}
	err = a.startAll(l, meeting(f.n, port), f.n, args)
	if err != nil {
		l.signal(os.Kill)
	}
	err = firstOf(err, l.wait(ctx, signals, l.signal))
	return l.told, err
}

// startAll starts the processes; those that have started when one cannot be are in l.
func (a *app) startAll(l *launched, variables []string, n int, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for rank := range n {
		c := exec.Command(self, args...)
		c.Env = append(append(os.Environ(), variables...), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		c.SysProcAttr, c.WaitDelay = ofParent(), l.grace
		said := []*lines{{to: a.err, prefix: fmt.Sprintf("[%d] ", rank)}, {to: a.err, prefix: fmt.Sprintf("[%d] ", rank)}}
		if rank == 0 {
			said[0] = &lines{to: a.out}
		}
		c.Stdout, c.Stderr = said[0], said[1]
		m := &member{Cmd: c, rank: rank, running: true}
		if err := m.start(); err != nil {
			return fmt.Errorf("rank %d of %d does not start: %w", rank, n, err)
		}
		l.all = append(l.all, m)
		go func() {
			err := c.Wait()
			for _, s := range said {
				s.flush()
			}
			l.over <- ending{rank, err, readCause(m.causes)}
		}()
	}
	return nil
}

// start starts the process with a pipe for the cause of its failure.
func (m *member) start() error {
	far, err := m.handCause()
	if err != nil {
		return err
	}
	err = m.Start()
	if far != nil {
		err = firstOf(err, far.Close()) // it is the process's
	}
	return err
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
func (l *launched) wait(ctx context.Context, signals <-chan os.Signal, pass func(os.Signal)) error {
	var next <-chan time.Time // when the rest is told more firmly
	firmly := []os.Signal{syscall.SIGTERM, os.Kill}
	done := ctx.Done()
	for left := len(l.all); left > 0; {
		select {
		case e := <-l.over:
			left--
			if l.take(e) && next == nil {
				next = time.After(min(l.grace, lastWords))
			}
		case s := <-signals:
			done, l.told = nil, true // the signal has ended that, too, and is passed on once
			pass(s)
		case <-done:
			done, l.told = nil, true
			pass(whichSignal(signals))
		case <-next:
			l.markEnded()
			pass(firmly[0])
			if firmly = firmly[1:]; len(firmly) > 0 {
				next = time.After(l.grace)
			}
		}
	}
	if e := l.culprit(); e != nil {
		return e
	}
	return nil
}

// take notes the end of a process, and reports whether it has failed. A process that it calls silent is killed.
func (l *launched) take(e ending) (failed bool) {
	m := l.all[e.rank]
	m.running, m.err = false, m.failure(e)
	m.cause = cause{Rank: e.rank, At: time.Now()}
	if e.cause != nil {
		m.cause = *e.cause
	}
	if v := m.cause; v.Silent && v.Rank < len(l.all) && l.all[v.Rank].running {
		l.all[v.Rank].ended = true
		_ = l.all[v.Rank].Process.Kill() // it may have ended meanwhile
	}
	return m.err != nil
}

// markEnded notes that launch ends all processes that run.
func (l *launched) markEnded() {
	for _, m := range l.all {
		m.ended = m.ended || m.running
	}
}

// culprit returns how the process that failed first did; nil when all ended well. A process that ended because of another names it.
func (l *launched) culprit() *launchedError {
	var first *member
	for _, m := range l.all {
		if m.err != nil && (first == nil || m.cause.At.Before(first.cause.At)) {
			first = m
		}
	}
	if first == nil {
		return nil
	}
	said := ""
	for range l.all { // who is named may name another one
		v := first.cause
		if v.Rank == first.rank || v.Rank >= len(l.all) || l.all[v.Rank].err == nil {
			break
		}
		first, said = l.all[v.Rank], v.Text
	}
	if first.ended && first.err.code > 128 && said != "" {
		return &launchedError{first.rank, exitFailed, strings.TrimPrefix(said, fmt.Sprintf("rank %d ", first.rank))}
	}
	return first.err
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

// signal sends a signal to all that run, and wakes those that are stopped; where the system has only one signal, that.
func (l *launched) signal(s os.Signal) {
	for _, m := range l.all {
		if !m.running {
			continue
		}
		if err := m.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			_ = m.Process.Kill() // it may have ended meanwhile
		}
		wake(m.Process)
	}
}

// failure says how a process that has ended did, nil when well.
func (m *member) failure(end ending) *launchedError {
	if end.err == nil {
		return nil
	}
	e := &launchedError{rank: m.rank, code: exitFailed, how: "failed: " + end.err.Error()}
	if _, ok := errors.AsType[*exec.ExitError](end.err); !ok {
		return e
	}
	e.code, e.how = m.ProcessState.ExitCode(), fmt.Sprintf("ended with exit code %d", m.ProcessState.ExitCode())
	if status, ok := m.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.code, e.how = 128+int(status.Signal()), fmt.Sprintf("was ended by signal %d (%v)", status.Signal(), status.Signal())
	}
	if e.code == exitUsage && end.cause == nil && m.causes != nil { // that of Go's runtime for a crash
		e.code, e.how = exitFailed, "crashed: "+e.how
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
