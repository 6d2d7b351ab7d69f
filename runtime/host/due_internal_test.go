package host

import (
	"testing"
	"time"
)

// two returns streams of two devices, the first of which stands still until its gate is opened.
func two(t *testing.T, c Config) (streams [2]*Stream, gate chan struct{}) {
	t.Helper()
	c.Memory, c.HostMemory = 2<<10, 2<<10
	parts, err := Split(c, 2)
	if err != nil {
		t.Fatal(err)
	}
	gate = make(chan struct{})
	for i, d := range parts {
		if err := d.Reserve(1<<10, 1<<10); err != nil {
			t.Fatal(err)
		}
		s, err := d.NewStream("s")
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = s.(*Stream)
		t.Cleanup(func() { _ = d.Close() })
	}
	must(t, streams[0].Launch(Func{Name: "gate", Do: func() error {
		<-gate
		return nil
	}}))
	return streams, gate
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets one stream wait for all of another so far.
func pass(t *testing.T, from, to *Stream) {
	t.Helper()
	e, err := from.device.NewEvent()
	must(t, err)
	must(t, from.Record(e))
	must(t, to.Wait(e))
}

// Pauses that wait for each other are due as long after the first one as all of them take, however late each of them wakes up. The last one
// ends no earlier.
func TestLatenessOfPausesDoesNotAddUp(t *testing.T) {
	t.Parallel()
	const rounds, length = 40, 300 * time.Microsecond
	streams, gate := two(t, Config{})
	for range rounds {
		must(t, streams[0].Launch(Pause("here", length)))
		pass(t, streams[0], streams[1])
		must(t, streams[1].Launch(Pause("there", length)))
		pass(t, streams[1], streams[0])
	}
	close(gate)
	must(t, streams[0].Synchronize())
	ended := now()
	first, last := streams[0].dueAt(1), streams[0].dueAt(streams[0].issued)
	if want := first + 2*rounds*length; last != want {
		t.Errorf("the last pause is due %v behind the gate, want %v", last-first, want-first)
	}
	if ended < last {
		t.Errorf("the last pause ended %v before it was due", last-ended)
	}
}

// A pause begins no earlier than it was issued, and than a kernel before it has ended.
func TestPausesBeginWhenWhatTheyWaitForHasEnded(t *testing.T) {
	t.Parallel()
	const length = time.Millisecond
	streams, gate := two(t, Config{})
	pass(t, streams[0], streams[1])
	must(t, streams[1].Launch(Pause("behind the gate", length)))
	opened := now()
	close(gate)
	must(t, streams[1].Synchronize())
	if due := streams[1].dueAt(streams[1].issued); due < opened+length {
		t.Errorf("due %v after the gate opened, want %v at least", due-opened, length)
	}
	issued := now()
	must(t, streams[1].Launch(Pause("alone", length)))
	must(t, streams[1].Synchronize())
	if due := streams[1].dueAt(streams[1].issued); due < issued+length {
		t.Errorf("due %v after it was issued, want %v at least", due-issued, length)
	}
}

// A throttled copy is due as long after it was due to begin as the link takes, though it begins late.
func TestLateCopiesAreDueAsPunctualOnes(t *testing.T) {
	t.Parallel()
	l := newLink(1000)
	begin := now() - time.Minute
	l.free = begin
	for i, want := range []time.Duration{begin + 3*time.Second, begin + 6*time.Second} { // the link is busy when the second one begins
		due, err := l.copy(begin+time.Duration(i)*time.Second, make([]byte, 3000), make([]byte, 3000), pauser{abandoned: &never})
		must(t, err)
		if due != want {
			t.Errorf("copy %d is due %v after the first began, want %v", i, due-begin, want-begin)
		}
	}
}

// A command that ran too long ago to be known was due no later than the commands that ran since.
func TestOldCommandsWereDueBeforeNewOnes(t *testing.T) {
	t.Parallel()
	streams, gate := two(t, Config{Queue: 4})
	close(gate)
	for range 10 {
		must(t, streams[0].Launch(Pause("here", time.Microsecond)))
	}
	must(t, streams[0].Synchronize())
	s := streams[0]
	for n := uint64(1); n <= 11; n++ {
		if got, want := s.dueAt(n), s.due[max(n, 8)%4]; got != want {
			t.Errorf("command %d was due at %v, want %v", n, got, want)
		}
	}
}
