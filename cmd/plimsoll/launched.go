package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

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

// lastWords is how long the others may take to say why they end, too, before they are told to; --grace if that is shorter.
const lastWords = 3 * time.Second
