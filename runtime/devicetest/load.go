package devicetest

import (
	"fmt"
	"sync"
	"testing"

	"plimsoll/runtime"
)

var loadCases = []testCase{
	{"issuing to many streams in a chain", needData, 1, manyStreams},
	{"many goroutines issue at once", needData, 2, manyGoroutines},
	{"more work than any queue holds", needData, 1, longQueue},
	{"a step allocates nothing", 0, 2, allocatesNothing},
	{"random programs on one device equal their sequential meaning", needData, 1, randomPrograms},
	{"random programs on two devices equal their sequential meaning", needData, 2, randomPrograms},
}

// manyStreams passes a value through all streams, round and round.
func manyStreams(k *kit) {
	const streams, rounds, n = 24, 20, 64
	d := k.device()
	var all []runtime.Stream
	var events []runtime.Event
	want := make([][]byte, streams)
	for i := range streams {
		all = append(all, k.stream(d, fmt.Sprintf("s%d", i)))
		events = append(events, k.event(d))
		want[i] = pattern(n, byte(i))
		k.write(d, all[i], arena(int64(i)*n, n), want[i])
	}
	for range rounds {
		for i := range streams {
			from := (i + streams - 1) % streams
			k.must(all[i].Wait(events[from]))
			k.must(all[i].Launch(k.suite.Mix(d, arena(int64(i)*n, n), arena(int64(from)*n, n))))
			k.must(all[i].Record(events[i]))
			mix(want[i], want[from])
		}
	}
	for i, s := range all {
		k.soon(s.Name(), s.Synchronize)
		k.wantBytes(d, s, arena(int64(i)*n, n), want[i])
	}
}

// manyGoroutines has each goroutine use its own stream, and all of them one shared stream.
func manyGoroutines(k *kit) {
	const goroutines, rounds, n = 8, 100, 32
	d, other := k.reserved()[0], k.devices[1]
	shared := k.stream(d, "shared")
	count, one := arena(0, n), arena(n, n)
	ones := make([]byte, n)
	for i := range ones {
		ones[i] = 1
	}
	k.write(d, shared, one, ones)
	var group sync.WaitGroup
	for g := range goroutines {
		own, e := k.stream(d, fmt.Sprintf("own%d", g)), k.event(d)
		mine := arena(int64(2+g)*n, n)
		group.Go(func() {
			for range rounds {
				k.note(shared.Launch(k.suite.Mix(d, count, one)))
				k.note(own.Launch(k.suite.Mix(d, mine, one)))
				k.note(own.CopyPeer(other, mine, mine))
				k.note(own.Record(e))
				k.note(shared.Wait(e))
			}
			k.note(own.Synchronize())
		})
	}
	group.Wait()
	k.soon("the shared stream", shared.Synchronize)
	k.wantBytes(d, shared, count, repeated(ones, goroutines*rounds))
	t := k.stream(other, "t")
	for g := range int64(goroutines) {
		k.wantBytes(other, t, arena((2+g)*n, n), repeated(ones, rounds))
	}
}

// note is must for goroutines other than the test's.
func (k *kit) note(err error) {
	k.Helper()
	if err != nil {
		k.Error(err)
	}
}

// repeated returns the result of mixing src into zeros a number of times.
func repeated(src []byte, times int) []byte {
	b := make([]byte, len(src))
	for range times {
		mix(b, src)
	}
	return b
}

func longQueue(k *kit) {
	const launches, n = 5_000, 8
	d := k.device()
	s := k.stream(d, "s")
	src := pattern(n, 6)
	k.write(d, s, arena(n, n), src)
	l := k.suite.Mix(d, arena(0, n), arena(n, n))
	for range launches {
		k.must(s.Launch(l))
	}
	k.wantBytes(d, s, arena(0, n), repeated(src, launches))
}

func allocatesNothing(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, t, far := k.stream(d, "s"), k.stream(d, "t"), k.stream(other, "far")
	e, f, g := k.event(d), k.event(d), k.event(other)
	l := k.suite.Mix(d, arena(0, 64), arena(64, 64))
	step := func() {
		for range 50 {
			k.note(s.Launch(l))
			k.note(s.Record(e))
			k.note(t.Wait(e))
			k.note(t.Copy(host(0, 64), arena(0, 64)))
			k.note(t.CopyPeer(other, arena(0, 64), arena(0, 64)))
			k.note(t.Record(f))
			k.note(far.Wait(f))
			k.note(far.Record(g))
			k.note(s.Wait(g))
		}
		k.note(s.Synchronize())
		k.note(g.Synchronize())
	}
	step()
	if raceEnabled {
		return // the race detector allocates
	}
	if n := testing.AllocsPerRun(20, step); n != 0 {
		k.Errorf("450 calls made %v heap allocations", n)
	}
}
