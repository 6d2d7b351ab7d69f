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
	// longestLine is how many bytes of a line are kept until its end comes.
	longestLine = 64 << 10
)

// launchCommand is plimsoll launch.
type launchCommand struct {
	*app
	n        int
	grace    time.Duration
	restarts int
}

func newLaunchCommand(a *app) *cobra.Command {
	c := &launchCommand{app: a}
	launch := &cobra.Command{
		Use:   "launch -n N [flags] -- command ...",
		Short: "Run a command in several processes on this machine",
		Long: `Run a command of plimsoll in several processes on this machine, as torchrun, srun and mpiexec do on many.

Each process is told who it is by RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR (127.0.0.1) and MASTER_PORT (a free one), and gets a random
secret in PLIMSOLL_SECRET unless there is one. Standard output of rank 0 is that of launch, so that scripts can read it; everything
else goes to standard error, each line behind the number of its rank. SIGINT, SIGTERM and SIGHUP are passed on.

When a process fails, the others have 3 s to say that they end, too; then they get SIGTERM, and SIGKILL after --grace. A process that the
others call silent gets SIGKILL at once. The processes tell launch which one failed first, and its exit code is launch's. If a signal ended
it, the code is 128 plus the number of the signal; if launch had to end it, the code is 1.

With --max-restarts N, all processes are started again after a failure, at most N times, with --resume and without --force; the command
needs --out. Exit codes 2 (flags or input) and 3 (it does not fit) end launch at once, since the processes would fail again; so does a signal
to launch. The exit code is that of the last start. Rank 0 prints its summary once, at the end.`,
		Example: `  plimsoll launch -n 4 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 100
  plimsoll launch -n 4 --max-restarts 3 -- train --world auto -m resnet20 --data glyphs --batch 64 --strategy 1f1b-flush --steps 1000 --out runs/a --checkpoint-every 100`,
		Args: func(cmd *cobra.Command, args []string) error {
			return firstOf(c.check(), launchable(cmd, args), c.restartable(args))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return commandNames(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	launch.Flags().SetInterspersed(false) // what follows the command's name is its own
	launch.Flags().IntVarP(&c.n, "processes", "n", 0, "processes")
	launch.Flags().DurationVar(&c.grace, "grace", 30*time.Second, "how long processes may take to end when they are told to, before they are killed")
	launch.Flags().IntVar(&c.restarts, "max-restarts", 0, "start all processes again with --resume when one has failed, at most so often")
	return launch
}

func (c *launchCommand) check() error {
	switch {
	case c.n < 1 || c.n > mostProcesses:
		return usage(fmt.Errorf("-n %d: give a number of processes from 1 to %d", c.n, mostProcesses))
	case c.grace < 0:
		return usage(fmt.Errorf("--grace is %v: give a time, as in 30s", c.grace))
	case c.restarts < 0:
		return usage(fmt.Errorf("--max-restarts is %d: give how often processes may be started again, or 0 for never", c.restarts))
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
func (c *launchCommand) restartable(args []string) error {
	if c.restarts == 0 {
		return nil
	}
	apart := &app{stdin: c.stdin, stdout: c.stdout, stderr: c.stderr} // its flags are not those of launch
	found, flags, err := apart.root().Find(args)
	if err != nil || found.ParseFlags(flags) != nil {
		return nil //nolint:nilerr // the processes refuse them
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

// run starts the processes and waits for all, again and again when they fail and may be started again.
func (c *launchCommand) run(ctx context.Context, args []string) error {
	runtime.LockOSThread() // processes end with the thread that started them, where the system can do that
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup leaves it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	for restart := 1; ; restart++ {
		told, err := c.launchOnce(ctx, signals, args)
		failure, ok := errors.AsType[*launchedError](err)
		if !ok || failure.final() || told || ctx.Err() != nil || restart > c.restarts {
			return err
		}
		c.warn("%v: all processes are started again with --resume (restart %d of %d)", failure, restart, c.restarts)
		if restart == 1 {
			args = resumed(args)
		}
	}
}

// launchOnce starts the processes and waits for all. told reports that launch has got a signal.
func (c *launchCommand) launchOnce(ctx context.Context, signals <-chan os.Signal, args []string) (told bool, err error) {
	port, release, err := freeport.Reserve()
	if err != nil {
		return false, err
	}
	defer release()
	l := &launched{over: make(chan ending), grace: c.grace}
	err = c.startAll(l, meeting(c.n, port), args)
	if err != nil {
		l.signal(os.Kill)
	}
	err = firstOf(err, l.wait(ctx, signals, l.signal))
	return l.told, err
}

// startAll starts the processes; those that have started when one cannot be are in l.
func (c *launchCommand) startAll(l *launched, variables []string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for rank := range c.n {
		process := exec.Command(self, args...)
		process.Env = append(append(os.Environ(), variables...), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("LOCAL_RANK=%d", rank))
		process.SysProcAttr, process.WaitDelay = ofParent(), l.grace
		said := []*lines{{to: c.stderr, prefix: fmt.Sprintf("[%d] ", rank)}, {to: c.stderr, prefix: fmt.Sprintf("[%d] ", rank)}}
		if rank == 0 {
			said[0] = &lines{to: c.stdout}
		}
		process.Stdout, process.Stderr = said[0], said[1]
		m := &member{Cmd: process, rank: rank, running: true}
		if err := m.start(); err != nil {
			return fmt.Errorf("rank %d of %d does not start: %w", rank, c.n, err)
		}
		l.all = append(l.all, m)
		go func() {
			err := process.Wait()
			for _, s := range said {
				s.flush()
			}
			l.over <- ending{rank, err, readCause(m.causes)}
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
