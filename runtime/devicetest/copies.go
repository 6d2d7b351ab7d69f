package devicetest

import (
	"bytes"

	"plimsoll/runtime"
)

var copyCases = []testCase{
	{"copies move every byte and no other", needData, 1, everyByte},
	{"peer copies move every byte and no other", needData, 2, everyBytePeer},
	{"a peer copy to the device itself is a copy", needData, 1, peerItself},
	{"copies in both directions at once do not disturb each other", needData, 2, bothDirections},
	{"Close waits for a peer's copy into the arena", needGate, 2, closeWaitsForPeer},
	{"another kind of peer is refused", 0, 1, foreignPeer},
}

// everyByte sends bytes from host to arena, within the arena, back, and within the host space, at odd places.
func everyByte(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	all, err := d.HostBytes(host(0, space))
	k.must(err)
	for _, n := range []int64{1, 7, 64, 4095, 65537, 200_001} {
		copy(all, pattern(space, byte(n)))
		want := append([]byte(nil), all...)
		copy(want[500_003:], want[13:13+n])
		copy(want[250_001:250_001+n], want[500_003:])
		k.must(s.Copy(arena(3, n), host(13, n)))
		k.must(s.Copy(arena(400_001, n), arena(3, n)))
		k.must(s.Copy(host(500_003, n), arena(400_001, n)))
		k.must(s.Copy(host(250_001, n), host(500_003, n)))
		k.must(s.Synchronize())
		if !bytes.Equal(all, want) {
			k.Errorf("%d bytes: the host space differs from what it should be", n)
		}
	}
}

func everyBytePeer(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s, t := k.stream(d, "s"), k.stream(other, "t")
	e := k.event(d)
	want := pattern(space/2, 1)
	k.write(other, t, arena(0, space/2), want)
	for i, n := range []int64{1, 7, 4095, 65537} {
		data := pattern(n, byte(i))
		k.write(d, s, arena(5, n), data)
		k.must(s.CopyPeer(other, arena(1001, n), arena(5, n)))
		k.must(s.Record(e))
		k.must(t.Wait(e))
		copy(want[1001:], data)
		k.wantBytes(other, t, arena(0, space/2), want)
	}
}

func peerItself(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	data := pattern(999, 4)
	k.write(d, s, arena(1, 999), data)
	k.must(s.CopyPeer(d, arena(2000, 999), arena(1, 999)))
	k.wantBytes(d, s, arena(2000, 999), data)
}

// bothDirections runs four copies at a time: in and out of host memory, and to and from the peer.
func bothDirections(k *kit) {
	const n = space / 8
	d, other := k.reserved()[0], k.devices[1]
	in, out := k.stream(d, "in"), k.stream(d, "out")
	to, from := k.stream(d, "to"), k.stream(other, "from")
	k.write(d, out, arena(n, n), pattern(n, 2))
	k.write(d, to, arena(2*n, n), pattern(n, 3))
	k.write(other, from, arena(0, n), pattern(n, 4))
	b, err := d.HostBytes(host(0, 2*n))
	k.must(err)
	copy(b, pattern(n, 1))
	for range 20 {
		k.must(in.Copy(arena(0, n), host(0, n)))
		k.must(out.Copy(host(n, n), arena(n, n)))
		k.must(to.CopyPeer(other, arena(n, n), arena(2*n, n)))
		k.must(from.CopyPeer(d, arena(3*n, n), arena(0, n)))
	}
	for _, s := range []runtime.Stream{in, out, to, from} {
		k.soon(s.Name(), s.Synchronize)
	}
	if !bytes.Equal(b[n:], pattern(n, 2)) {
		k.Error("out: wrong bytes")
	}
	k.wantBytes(d, in, arena(0, n), pattern(n, 1))
	k.wantBytes(other, from, arena(n, n), pattern(n, 3))
	k.wantBytes(d, in, arena(3*n, n), pattern(n, 4))
}

func closeWaitsForPeer(k *kit) {
	d, other := k.reserved()[0], k.devices[1]
	s := k.stream(d, "s")
	gate, open := k.gate(d)
	k.must(s.Launch(gate))
	k.must(s.CopyPeer(other, arena(0, space), arena(0, space)))
	k.wantAfter(open, other.Close)
	k.soon("the stream", s.Synchronize)
}

type foreignDevice struct{ runtime.Device }

func foreignPeer(k *kit) {
	d := k.device()
	s := k.stream(d, "s")
	for _, peer := range []runtime.Device{foreignDevice{}, nil} {
		k.wantIs(s.CopyPeer(peer, arena(0, 8), arena(0, 8)), runtime.ErrForeignPeer, "CopyPeer")
	}
	k.must(s.Synchronize())
}
