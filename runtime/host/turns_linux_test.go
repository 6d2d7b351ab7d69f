package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"plimsoll/runtime/host"
)

const inTurns = "PLIMSOLL_TEST_TURNS"

// Every thread of a process, those that begin later too, has long turns, and the niceness that it had.
func TestLongTurns(t *testing.T) {
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

// A policy that whoever has started the process has chosen stays.
func TestChosenPolicyStays(t *testing.T) {
	if os.Getenv(inTurns) != "" {
		host.LongTurns()
		if a, err := unix.SchedGetAttr(0, 0); err != nil || a.Policy != unix.SCHED_IDLE {
			t.Errorf("policy %v, %v, want %d", a, err, unix.SCHED_IDLE)
		}
		return
	}
	if err := exec.Command("chrt", "-i", "0", "true").Run(); err != nil {
		t.Skip(err)
	}
	c := exec.Command("chrt", "-i", "0", os.Args[0], "-test.run", "^TestChosenPolicyStays$", "-test.v")
	c.Env = append(os.Environ(), inTurns+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
