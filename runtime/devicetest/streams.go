package devicetest

import "plimsoll/runtime"

var streamCases = []testCase{
	{"a stream keeps its name", 0, 1, keepsName},
	{"a stream runs in order", needData, 1, inOrder},
	{"issuing does not wait for the work", needGate, 2, issueReturns},
	{"streams do not wait for each other", needGate, 1, independent},
	{"Synchronize waits for everything issued", needGate, 1, synchronizeWaits},
	{"Close waits for everything issued", needGate, 1, closeWaits},
	{"launches of another kind are refused", 0, 1, foreignLaunch},
}

func keepsName(k *kit) {
	if got := k.stream(k.device(), "compute").Name(); got != "compute" {
		k.Errorf("it is called %q", got)
	}
}

// inOrder alternates launches and copies, each of which destroys the result when it is early or late.
func inOrder(k *kit) {
	const n = 1000
	d := k.device()
	s := k.stream(d, "s")
	x, y := arena(0, n), arena(n, n)
	a, b := pattern(n, 3), pattern(n, 5)
	k.write(d, s, x, a)
	k.write(d, s, y, b)
	xy, yx := k.suite.Mix(d, x, y), k.suite.Mix(d, y, x)
	for i := range 200 {
		if i%3 == 0 {
			k.must(s.Launch(xy))
			mix(a, b)
		} else {
			k.must(s.Launch(yx))
			mix(b, a)
		}
		if i%10 == 0 {
			k.must(s.Copy(x, y))
			copy(a, b)
		}
	}
	k.wantBytes(d, s, x, a)
	k.wantBytes(d, s, y, b)
}

func issueReturns(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, t := k.stream(d, "s"), k.stream(d, "t")
	held, open := k.gate(d)
	e := k.event(d)
	k.soon("issuing", func() error {
		k.must(s.Launch(held))
		k.must(s.Launch(k.suite.Mix(d, arena(0, 8), arena(8, 8))))
		k.must(s.Copy(arena(0, 8), host(0, 8)))
		k.must(s.CopyPeer(other, arena(0, 8), arena(8, 8)))
		k.must(s.Record(e))
		return t.Wait(e)
	})
	open()
	k.soon("the stream", s.Synchronize)
	k.soon("the waiting stream", t.Synchronize)
}

func independent(k *kit) {
	d := k.device()
	s, t := k.stream(d, "s"), k.stream(d, "t")
	held, open := k.gate(d)
	k.must(s.Launch(held))
	k.must(t.Launch(k.suite.Mix(d, arena(0, 8), arena(8, 8))))
	k.must(t.Copy(arena(0, 8), host(0, 8)))
	k.soon("the other stream", t.Synchronize)
	open()
	k.soon("the stream", s.Synchronize)
}

// synchronizeWaits opens the gate from another goroutine, which says so just before; when Synchronize is back, it
// must have been said.
func synchronizeWaits(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	e := k.event(d)
	for _, wait := range []func() error{s.Synchronize, e.Synchronize} {
		held, open := k.gate(d)
		k.must(s.Launch(held))
		k.must(s.Record(e))
		k.wantAfter(open, wait)
	}
}

func closeWaits(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	held, open := k.gate(d)
	k.must(s.Launch(held))
	k.must(s.Copy(host(0, space), arena(0, space)))
	k.wantAfter(open, d.Close)
}

type foreign struct{}

func (foreign) Kernel() string { return "foreign" }

func foreignLaunch(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	k.wantIs(s.Launch(foreign{}), runtime.ErrForeignLaunch, "Launch")
	k.wantIs(s.Launch(nil), runtime.ErrForeignLaunch, "Launch(nil)")
	k.must(s.Launch(k.suite.Mix(d, arena(0, 8), arena(8, 8))))
	k.must(s.Synchronize())
}
