package devicetest

import (
	"time"

	"plimsoll/runtime"
)

var eventCases = []testCase{
	{"Wait orders two streams", needData | needGate, 1, waitOrders},
	{"Wait orders streams of two devices", needData | needGate, 2, waitOrdersDevices},
	{"Wait is for the latest Record at the time of the call", needGate, 1, waitIsForLatest},
	{"recording again does not disturb a pending wait", needData | needGate, 1, recordAgain},
	{"recording again on the same stream does not disturb a pending wait", needData | needGate, 1, recordAgainSameStream},
	{"an event never recorded is complete", 0, 1, neverRecorded},
	{"Synchronize is for the latest Record", needGate, 1, synchronizeLatest},
	{"Since needs both events complete", needGate, 1, sincePending},
	{"Since is for the latest Record", needGate, 1, sinceLatest},
	{"Since measures forwards and backwards", 0, 1, sinceMeasures},
	{"events of another device are recorded there only", 0, 2, foreignEvents},
}

// waitOrders holds a writer up; the reader on another stream must see what it wrote.
func waitOrders(k *kit) {
	d := k.device()
	s, t, e := k.stream(d, "s"), k.stream(d, "t"), k.event(d)
	x, y := arena(0, 100), arena(100, 100)
	want := k.heldWrite(d, s, x)
	k.must(s.Record(e))
	k.must(t.Wait(e))
	k.must(t.Copy(y, x))
	want.open()
	k.wantBytes(d, t, y, want.bytes)
}

type held struct {
	bytes []byte
	open  func()
}

// heldWrite issues a gate and, behind it, a launch that writes x.
func (k *kit) heldWrite(d runtime.Device, s runtime.Stream, x runtime.Span) held {
	k.Helper()
	source := arena(space-x.Bytes, x.Bytes)
	data := pattern(x.Bytes, 9)
	k.write(d, s, source, data)
	gate, open := k.gate(d)
	k.must(s.Launch(gate))
	k.must(s.Launch(k.suite.Mix(d, x, source)))
	want := make([]byte, x.Bytes)
	mix(want, data)
	return held{want, open}
}

func waitOrdersDevices(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, t, e := k.stream(d, "s"), k.stream(other, "t"), k.event(d)
	back := k.event(other)
	x, y, z := arena(0, 100), arena(100, 100), arena(300, 100)
	want := k.heldWrite(d, s, x)
	k.must(s.CopyPeer(other, y, x))
	k.must(s.Record(e))
	k.must(t.Wait(e))
	k.must(t.CopyPeer(d, z, y))
	k.must(t.Record(back))
	k.must(s.Wait(back))
	want.open()
	k.wantBytes(d, s, z, want.bytes)
}

func waitIsForLatest(k *kit) {
	d := k.device()
	s, t, e := k.stream(d, "s"), k.stream(d, "t"), k.event(d)
	k.must(s.Record(e))
	k.must(t.Wait(e))
	gate, open := k.gate(d)
	k.must(s.Launch(gate))
	k.must(s.Record(e))
	k.soon("the stream that waits for the first Record", t.Synchronize)
	open()
	k.soon("the stream", s.Synchronize)
}

func recordAgain(k *kit) {
	d := k.device()
	s, t, u, e := k.stream(d, "s"), k.stream(d, "t"), k.stream(d, "u"), k.event(d)
	x, y := arena(0, 100), arena(100, 100)
	want := k.heldWrite(d, s, x)
	k.must(s.Record(e))
	k.must(t.Wait(e))
	k.must(t.Copy(y, x))
	k.must(u.Record(e)) // complete at once, while t still waits for s
	k.soon("the event", e.Synchronize)
	want.open()
	k.wantBytes(d, t, y, want.bytes)
}

func recordAgainSameStream(k *kit) {
	d := k.device()
	s, t, e := k.stream(d, "s"), k.stream(d, "t"), k.event(d)
	x, y := arena(0, 100), arena(100, 100)
	want := k.heldWrite(d, s, x)
	k.must(s.Record(e))
	k.must(t.Wait(e))
	k.must(t.Copy(y, x))
	gate, open := k.gate(d)
	k.must(s.Launch(gate))
	k.must(s.Record(e)) // pending until the second gate opens, which t must not wait for
	want.open()
	k.soon("the stream that waits for the first Record", t.Synchronize)
	k.wantBytes(d, t, y, want.bytes)
	open()
	k.soon("the event", e.Synchronize)
}

func neverRecorded(k *kit) {
	d := k.device()
	s, e, recorded := k.stream(d, "s"), k.event(d), k.event(d)
	k.must(s.Wait(e))
	k.soon("the stream", s.Synchronize)
	k.soon("the event", e.Synchronize)
	k.must(s.Record(recorded))
	k.must(s.Synchronize())
	_, err := e.Since(recorded)
	k.wantIs(err, runtime.ErrNotRecorded, "Since of an event never recorded")
	_, err = recorded.Since(e)
	k.wantIs(err, runtime.ErrNotRecorded, "Since an event never recorded")
}

func synchronizeLatest(k *kit) {
	d := k.device()
	s, t, e := k.stream(d, "s"), k.stream(d, "t"), k.event(d)
	gate, open := k.gate(d)
	k.must(s.Launch(gate))
	k.must(s.Record(e))
	k.must(t.Record(e))
	k.soon("the event", e.Synchronize)
	k.must(s.Record(e))
	k.wantAfter(open, e.Synchronize)
}

func sincePending(k *kit) {
	d := k.device()
	s, before, after := k.stream(d, "s"), k.event(d), k.event(d)
	gate, open := k.gate(d)
	k.must(s.Record(before))
	k.must(s.Launch(gate))
	k.must(s.Record(after))
	_, err := after.Since(before)
	k.wantIs(err, runtime.ErrNotComplete, "Since")
	_, err = before.Since(after)
	k.wantIs(err, runtime.ErrNotComplete, "Since")
	open()
	k.soon("the event", after.Synchronize)
	_, err = after.Since(before)
	k.must(err)
}

// sinceLatest records e three times; the first two are complete when Since is called, the third is not.
func sinceLatest(k *kit) {
	d := k.device()
	s, t, before, e := k.stream(d, "s"), k.stream(d, "t"), k.event(d), k.event(d)
	first, openFirst := k.gate(d)
	second, openSecond := k.gate(d)
	k.must(s.Record(before))
	k.must(s.Record(e))
	k.must(s.Synchronize())
	k.must(s.Launch(first))
	k.must(s.Record(e))
	_, err := e.Since(before)
	k.wantIs(err, runtime.ErrNotComplete, "Since after the second Record")
	k.must(t.Launch(second))
	k.must(t.Record(e))
	openFirst()
	k.soon("the stream of the second Record", s.Synchronize)
	_, err = e.Since(before)
	k.wantIs(err, runtime.ErrNotComplete, "Since after the third Record")
	openSecond()
	k.soon("the event", e.Synchronize)
	_, err = e.Since(before)
	k.must(err)
}

func sinceMeasures(k *kit) {
	d := k.device()
	s, before, after := k.stream(d, "s"), k.event(d), k.event(d)
	k.must(s.Record(before))
	for range 20 {
		k.must(s.Launch(k.suite.Mix(d, arena(0, space/2), arena(space/2, space/2))))
	}
	k.must(s.Record(after))
	k.must(after.Synchronize())
	forwards := k.since(after, before)
	if forwards <= 0 {
		k.Errorf("20 launches took %v", forwards)
	}
	if backwards := k.since(before, after); backwards != -forwards {
		k.Errorf("backwards it is %v, forwards %v", backwards, forwards)
	}
	if itself := k.since(after, after); itself != 0 {
		k.Errorf("since itself it is %v", itself)
	}
}

func (k *kit) since(e, earlier runtime.Event) time.Duration {
	k.Helper()
	elapsed, err := e.Since(earlier)
	k.must(err)
	return elapsed
}

type foreignEvent struct{}

func (foreignEvent) Synchronize() error                             { return nil }
func (foreignEvent) Since(runtime.Event) (d time.Duration, e error) { return 0, nil }

func foreignEvents(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, mine, theirs := k.stream(d, "s"), k.event(d), k.event(other)
	k.wantIs(s.Record(theirs), runtime.ErrForeignEvent, "Record of another device's event")
	for _, e := range []runtime.Event{foreignEvent{}, nil} {
		k.wantIs(s.Record(e), runtime.ErrForeignEvent, "Record of a foreign event")
		k.wantIs(s.Wait(e), runtime.ErrForeignEvent, "Wait for a foreign event")
		_, err := mine.Since(e)
		k.wantIs(err, runtime.ErrForeignEvent, "Since a foreign event")
	}
	k.must(s.Wait(theirs))
	k.must(s.Synchronize())
}
