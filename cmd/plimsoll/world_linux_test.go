package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plimsoll/internal/freeport/freeporttest"
)

// A process of a world on CPUs has long turns on its cores, with all of its threads, before it meets the others.
func TestProcessesOfAWorldHaveLongTurns(t *testing.T) {
	t.Parallel()
	if own, err := unix.SchedGetAttr(0, 0); err != nil || own.Policy != unix.SCHED_NORMAL {
		t.Skipf("policy %v, %v", own, err)
	}
	if err := exec.Command("chrt", "-b", "0", "true").Run(); err != nil { // may policies be set here?
		t.Skip(err)
	}
	p := program(t, nil, append([]string{"train", "--world", "2", "--option", "world.rank=0", "--option", "world.master=" + freeporttest.Address(t)}, forDevices()...)...)
	p.Env = append(p.Env, "PLIMSOLL_SECRET=")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	p.Stderr = w
	p.start()
	_ = w.Close()
	said := bufio.NewScanner(io.TeeReader(r, &p.err))
	for said.Scan() && !strings.HasPrefix(said.Text(), "rank 0 waits at ") {
	}
	folder := fmt.Sprintf("/proc/%d/task", p.Process.Pid)
	threads, err := os.ReadDir(folder)
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v: %s", len(threads), err, p.err.String())
	}
	for _, e := range threads {
		id, _ := strconv.Atoi(e.Name())
		a, err := unix.SchedGetAttr(id, 0)
		if errors.Is(err, unix.ESRCH) { // it has ended meanwhile
			continue
		}
		if err != nil || a.Policy != unix.SCHED_BATCH {
			t.Errorf("thread %d of %d has policy %v, %v", id, len(threads), a, err)
		}
	}
}
