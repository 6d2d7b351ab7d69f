package host_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"plimsoll/runtime"
	"plimsoll/runtime/host"
)

const alone = "PLIMSOLL_TEST_ALONE"

// With a core of its own, the stream that computes has one that all other threads of the process leave; when it closes, all have all cores again.
// Updates on the host wait for their core, and other streams do not.
func TestOwnCore(t *testing.T) {
	t.Parallel()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil || before.Count() < 2 {
		t.Skipf("%d cores, %v", before.Count(), err)
	}
	if os.Getenv(alone) == "" { // other devices of this process compute, too
		c := exec.Command(os.Args[0], "-test.run", "^TestOwnCore$", "-test.v")
		c.Env = append(os.Environ(), alone+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	d, err := host.New(host.Config{Memory: 1 << 20, HostMemory: 1 << 20, OwnCore: true})
	must(t, err)
	must(t, d.Reserve(1<<10, 1<<10))
	compute, updates := stream(t, d, "compute"), stream(t, d, "updates on the host")
	marked, err := d.NewEvent()
	must(t, err)
	var own, others unix.CPUSet
	var thread, niceness int
	find := func(into *unix.CPUSet) runtime.Launch {
		return host.Func{Name: "find", Do: func() error {
			thread = unix.Gettid()
			return unix.SchedGetaffinity(0, into)
		}}
	}
	must(t, compute.Launch(find(&own)))
	must(t, compute.Synchronize())
	kept := thread
	must(t, updates.Launch(host.Func{Name: "find", Do: func() error {
		a, err := unix.SchedGetAttr(0, 0)
		if err == nil {
			niceness = int(a.Nice)
			err = unix.SchedGetaffinity(0, &others)
		}
		return err
	}}))
	must(t, updates.Record(marked))
	must(t, compute.Wait(marked))
	must(t, compute.Launch(find(&own)))
	must(t, compute.Synchronize())
	switch {
	case thread != kept:
		t.Errorf("thread %d computes, before it was %d", thread, kept)
	case own.Count() != 1 || others.Count() != before.Count()-1:
		t.Errorf("the stream that computes has %d cores, others have %d, the process %d", own.Count(), others.Count(), before.Count())
	case niceness < 10:
		t.Errorf("updates have a niceness of %d", niceness)
	}
	everyThread(t, func(id int, cores *unix.CPUSet) {
		if id != kept && *cores != others {
			t.Errorf("thread %d may use the core of the stream that computes", id)
		}
	})
	must(t, d.Close())
	everyThread(t, func(id int, cores *unix.CPUSet) {
		if *cores != before {
			t.Errorf("thread %d has %d cores when the device is closed, the process had %d", id, cores.Count(), before.Count())
		}
	})
}

// everyThread looks at the cores of all threads of the process.
func everyThread(t *testing.T, look func(id int, cores *unix.CPUSet)) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	must(t, err)
	for _, e := range threads {
		id, _ := strconv.Atoi(e.Name())
		var cores unix.CPUSet
		if unix.SchedGetaffinity(id, &cores) == nil {
			look(id, &cores)
		}
	}
}
