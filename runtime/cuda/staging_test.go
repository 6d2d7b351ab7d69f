//go:build cuda && linux && amd64

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"plimsoll/runtime"
	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/cudatest"
)

// Messages of all sizes go from one device to another through two stagings and the program. Each send runs after the earlier work on its
// stream. Later work on the other stream has the message.
func TestStaging(t *testing.T) {
	needGPUs(t, 2)
	const slots, most, rounds = 5, 3000, 40
	var devices [2]*cuda.Device
	var streams [2]runtime.Stream
	for i, d := range openGPUs(t, 2, false) {
		devices[i] = d.(*cuda.Device)
		must(t, d.Reserve(slots*4096, slots*rounds*3072))
		var err error
		streams[i], err = d.NewStream("s")
		must(t, err)
	}
	out, err := devices[0].NewStaging("out", most)
	must(t, err)
	in, err := devices[1].NewStaging("in", most)
	must(t, err)
	wire := make(chan []byte, 1)
	var sends, receives, lengths = [slots]runtime.Launch{}, [slots]runtime.Launch{}, [slots]int64{0, 1, 100, 2999, most}
	at := func(slot int) runtime.Span { return arena(int64(slot)*4096, lengths[slot]) }
	for i := range slots {
		sends[i], err = out.Send(at(i), func(p []byte) error {
			wire <- bytes.Clone(p)
			return nil
		})
		must(t, err)
		receives[i], err = in.Receive(at(i), func(p []byte) error {
			q := <-wire
			if copy(p, q) != len(q) || len(p) != len(q) {
				return fmt.Errorf("%d bytes for %d", len(q), len(p))
			}
			return nil
		})
		must(t, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var want, got [][]byte
	for range rounds {
		for _, slot := range r.Perm(slots) {
			// The stream copies the data in before it sends the message. The other stream copies the data out after it receives the
			// message.
			p, q := hostPart(t, devices[0], len(want), lengths[slot]), hostPart(t, devices[1], len(want), lengths[slot])
			for i := range p.bytes {
				p.bytes[i] = byte(r.Uint32())
			}
			want, got = append(want, p.bytes), append(got, q.bytes)
			must(t, errors.Join(streams[0].Copy(at(slot), p.span), streams[0].Launch(sends[slot])))
			must(t, errors.Join(streams[1].Launch(receives[slot]), streams[1].Copy(q.span, at(slot))))
		}
	}
	must(t, errors.Join(streams[0].Synchronize(), streams[1].Synchronize()))
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Fatalf("message %d of %d bytes is another one", i, len(want[i]))
		}
	}
}

type part struct {
	span  runtime.Span
	bytes []byte
}

func hostPart(t *testing.T, d *cuda.Device, i int, length int64) part {
	t.Helper()
	s := host(int64(i)*3072, length)
	b, err := d.HostBytes(s)
	must(t, err)
	return part{s, b}
}

// A message that fails stops its stream, and nothing waits for it or for those behind it.
func TestStagingThatFails(t *testing.T) {
	d, s := reserved(t, emulated(t))
	lost := errors.New("the other process has died")
	for _, receives := range []bool{false, true} {
		s, err := d.NewStream(s.Name() + "'")
		must(t, err)
		way, err := d.NewStaging("way 7", 64)
		must(t, err)
		make := way.Send
		if receives {
			make = way.Receive
		}
		calls := 0
		l, err := make(arena(0, 64), func([]byte) error {
			if calls++; calls < 3 {
				return nil
			}
			return lost
		})
		must(t, err)
		for range 6 {
			if err := s.Launch(l); err != nil && !errors.Is(err, lost) {
				t.Error(err)
			}
		}
		err = s.Synchronize()
		for err == nil && !receives { // whoever sends does not wait for the message
			err = s.Synchronize()
		}
		var stopped *runtime.StreamError
		if !errors.As(err, &stopped) || !errors.Is(err, lost) || stopped.Op != "way 7" {
			t.Errorf("%v", err)
		}
		if calls != 3 {
			t.Errorf("%d messages were handled", calls)
		}
	}
}

// Stagings are page-locked memory within the limit, for messages as long as they are, of the arena.
func TestStagingsHaveALimit(t *testing.T) {
	d := cudatest.Open(t, cuda.Config{Memory: limit, HostMemory: 1 << 20})[0]
	if _, err := d.NewStaging("early", 8); !errors.Is(err, runtime.ErrNotReserved) {
		t.Errorf("before Reserve: %v", err)
	}
	must(t, d.Reserve(1<<16, 1<<19))
	s, err := d.NewStaging("first", 1<<18)
	must(t, err)
	var oom *runtime.OutOfMemoryError
	if _, err := d.NewStaging("second", 1<<18); !errors.As(err, &oom) || oom.Space != runtime.Host || oom.Limit != 1<<20 {
		t.Errorf("above the limit: %v", err)
	}
	if _, err := s.Send(arena(0, 1<<18+64), nil); err == nil {
		t.Error("a longer message is taken")
	}
	if _, err := s.Receive(host(0, 8), nil); err == nil {
		t.Error("a message in host memory is taken")
	}
	cudatest.Fail(t, "cuMemHostAlloc:1=2")
	if _, err := d.NewStaging("refused", 8); !errors.As(err, &oom) {
		t.Errorf("refused: %v", err)
	}
	must(t, d.Close())
}

// If the driver refuses a call of a message, the message's stream stops.
func TestStagingCallsThatFail(t *testing.T) {
	for _, call := range []string{"cuStreamWaitValue32", "cuLaunchHostFunc", "cuMemcpyHtoDAsync"} {
		d, s := reserved(t, emulated(t))
		way, err := d.NewStaging("way", 8)
		must(t, err)
		l, err := way.Receive(arena(0, 8), func([]byte) error { return nil })
		must(t, err)
		cudatest.Fail(t, call+":1=801")
		must(t, s.Launch(l))
		wantText(t, s.Synchronize(), "way", call, "CUDA_ERROR_NOT_SUPPORTED")
	}
}

// In steady state messages take no memory of Go.
func TestMessagesTakeNoMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes some")
	}
	d, s := reserved(t, emulated(t))
	way, err := d.NewStaging("way", 64)
	must(t, err)
	l, err := way.Receive(arena(0, 64), func([]byte) error { return nil })
	must(t, err)
	n := testing.AllocsPerRun(50, func() {
		must(t, errors.Join(s.Launch(l), s.Synchronize()))
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
