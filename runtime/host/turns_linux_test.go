package host_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plimsoll/runtime/host"
)

const inTurns = "PLIMSOLL_TEST_TURNS"

// Every thread of a process, those that begin later too, has long turns, and the niceness that it had.
func TestLongTurns(t *testing.T) {
	t.Parallel()
	if os.Getenv(inTurns) != "" {
		host.LongTurns()
		later := make(chan struct{})
		for range 20 { // goroutines that keep their threads make more
			go func() {
				runtime.LockOSThread()
				later <- struct{}{}
				select {}
			}()
		}
		for range 20 {
			<-later
		}
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil || len(threads) < 20 {
			t.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, e := range threads {
			id, _ := strconv.Atoi(e.Name())
			if a, err := unix.SchedGetAttr(id, 0); err != nil || a.Policy != unix.SCHED_BATCH || fmt.Sprint(a.Nice) != os.Getenv(inTurns) {
				t.Errorf("thread %d has policy %d and niceness %d, %v: want %d and %s", id, a.Policy, a.Nice, err, unix.SCHED_BATCH, os.Getenv(inTurns))
			}
		}
		return
	}
	own, err := unix.SchedGetAttr(0, 0)
	if err != nil || own.Policy != unix.SCHED_NORMAL {
		t.Skipf("policy %v, %v", own, err)
	}
	if err := exec.Command("chrt", "-b", "0", "nice", "-n", "5", "true").Run(); err != nil { // may policies be set here?
		t.Skip(err)
	}
	c := exec.Command("nice", "-n", "5", os.Args[0], "-test.run", "^TestLongTurns$", "-test.v")
	c.Env = append(os.Environ(), fmt.Sprint(inTurns, "=", min(own.Nice+5, 19)))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// When a stream first computes, the thread of Go's runtime that watches the others waits for its turn; who copies does not, on whatever
// thread.
func TestTheMonitorWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	if os.Getenv(inTurns) == "" {
		again(t, "-o")
		return
	}
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	id := math.MaxInt
	for _, e := range threads {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > os.Getpid() {
			id = min(id, n)
		}
	}
	policy := func(id int) uint32 {
		a, err := unix.SchedGetAttr(id, 0)
		must(t, err)
		return a.Policy
	}
	d, s := reserved(t, host.Config{}, 1<<10)
	both := func(do func() error) {
		must(t, s.Launch(host.Func{Name: "test", Do: do}))
		must(t, s.Copy(hostSpan(0, 1<<10), arena(0, 1<<10)))
		must(t, s.Synchronize())
	}
	must(t, s.Copy(hostSpan(0, 1<<10), arena(0, 1<<10)))
	must(t, s.Synchronize())
	if got := policy(id); got != unix.SCHED_NORMAL {
		t.Errorf("policy %d before anything is computed", got)
	}
	woke := 0
	both(func() error {
		before, err := sleeps(id)
		for end := time.Now().Add(10 * time.Second); err == nil && woke < 5 && time.Now().Before(end); { // it looks at us every 10 ms
			woke, err = sleeps(id)
			woke -= before
		}
		return err
	})
	if got := policy(id); got != unix.SCHED_BATCH || woke < 5 {
		t.Errorf("policy %d of a thread that wakes up %d times beside one that computes, want %d", got, woke, unix.SCHED_BATCH)
	}
	// Threads that the monitor begins are as it is. A stream that computes keeps its thread.
	both(func() error {
		a, err := unix.SchedGetAttr(0, 0)
		if err == nil {
			a.Policy = unix.SCHED_BATCH
			err = unix.SchedSetAttr(0, a, 0)
		}
		return err
	})
	both(func() error {
		a, err := unix.SchedGetAttr(0, 0)
		if err == nil && a.Policy != unix.SCHED_NORMAL {
			err = fmt.Errorf("policy %d after a copy", a.Policy)
		}
		return err
	})
	must(t, d.Close())
}

// sleeps returns how often a thread has gone to sleep.
func sleeps(id int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", id))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// A policy that whoever has started the process has chosen stays.
func TestChosenPolicyStays(t *testing.T) {
	t.Parallel()
	if os.Getenv(inTurns) != "" {
		host.LongTurns()
		if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Policy != unix.SCHED_IDLE {
			t.Errorf("policy %v, %v, want %d", a, err, unix.SCHED_IDLE)
		}
		return
	}
	again(t, "-i")
}

// again runs the test in a process of its own, which chrt gives a policy.
func again(t *testing.T, policy string) {
	t.Helper()
	if err := exec.Command("chrt", policy, "0", "true").Run(); err != nil {
		t.Skip(err)
	}
	c := exec.Command("chrt", policy, "0", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inTurns+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
