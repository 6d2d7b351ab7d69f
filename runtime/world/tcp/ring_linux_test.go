package tcp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"plimsoll/runtime/world"
)

// here returns two ends of a socket of this machine.
func here(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near.(*net.UnixConn), far.(*net.UnixConn)
}

// Long messages on one machine go through a ring, in order with short ones, of every length about the edges of its slots.
func TestRing(t *testing.T) {
	t.Parallel()
	f := opened(t, together(t, 2), []world.Way{{Name: "a", From: 0, To: 1, Bytes: 9 * slotBytes}})
	out, in := f[0].outs[0].ring, f[1].ins[0].ring
	if out == nil || in == nil {
		t.Fatal("there is no ring")
	}
	if (out.peer == 0) != (in.peer == 0) {
		t.Fatalf("one end attaches, the other one does not: %d, %d", out.peer, in.peer)
	}
	t.Run("attached", func(t *testing.T) {
		if out.peer == 0 {
			var b [1]byte
			if readMemory(os.Getpid(), addressOf(in.memory), b[:]) == nil {
				t.Fatal("memory can be read, and is not")
			}
			t.Skip("the system lets no process read memory so")
		}
		mixed(t, f)
	})
	t.Run("copied twice", func(t *testing.T) {
		out.peer, in.peer = 0, 0
		mixed(t, f)
	})
}

// mixed sends messages of many lengths from rank 0 to 1.
func mixed(t *testing.T, f []*fabric) {
	var lengths []int
	for _, n := range []int{shortest, slotBytes, slots * slotBytes, 8 * slotBytes} {
		lengths = append(lengths, 1, n-1, n, n+1, 0)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var want, got [][]byte
	for range 5 {
		for _, n := range lengths {
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			want, got = append(want, p), append(got, make([]byte, n))
		}
	}
	each(2, func(rank int) {
		for i := range want {
			err := f[0].SendBytes
			p := want[i]
			if rank == 1 {
				err, p = f[1].ReceiveBytes, got[i]
			}
			if err := err(0, p); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Errorf("message %d of %d bytes is another one", i, len(want[i]))
		}
	}
}

// Whoever closes behind its last message has sent it.
func TestLastMessageInRing(t *testing.T) {
	t.Parallel()
	f := opened(t, together(t, 2), []world.Way{{Name: "a", From: 0, To: 1, Bytes: slots * slotBytes}})
	f[0].outs[0].ring.peer, f[1].ins[0].ring.peer = 0, 0 // else the sender waits
	want, got := bytes.Repeat([]byte("last"), slots*slotBytes/4), make([]byte, slots*slotBytes)
	if err := f[0].SendBytes(0, want); err != nil {
		t.Fatal(err)
	}
	if err := f[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := f[1].ReceiveBytes(0, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("it is lost: %v", err)
	}
}

// Memory that could be taken away, is of another size, or is none, is not taken: messages go through the socket.
func TestRingsThatAreNone(t *testing.T) {
	t.Parallel()
	memory := func(size int64, seals int) int {
		fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	file, err := os.CreateTemp(t.TempDir(), "file")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for i, rights := range [][]int{
		nil, {memory(slots*slotBytes, 0)}, {memory(slots*slotBytes-1, whole)}, {int(file.Fd())},
		{memory(slots*slotBytes, whole), memory(slots*slotBytes, whole)},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			near, far := here(t)
			before := descriptors(t, rights)
			if _, _, err := near.WriteMsgUnix(make([]byte, addressBytes+nonceBytes), unix.UnixRights(rights...), nil); err != nil {
				t.Fatal(err)
			}
			if r, err := takeRing(far); r != nil || err != nil {
				t.Errorf("%v, %v", r, err)
			}
			var taken [1]byte
			if err := readFull(near, taken[:]); err != nil || taken[0] != 0 {
				t.Errorf("%v, %v", taken, err)
			}
			if n := descriptors(t, rights); n != before {
				t.Errorf("%d descriptors are left open", n-before)
			}
		})
	}
	near, far := here(t)
	if _, err := far.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	if r, err := offerRing(near); r != nil || err != nil {
		t.Errorf("refused: %v, %v", r, err)
	}
}

// Whoever says that its memory holds what it does not is not read, nor is a process that is gone.
func TestMemoryThatIsNotRead(t *testing.T) {
	t.Parallel()
	near, far := here(t)
	file, memory := newMemory()
	defer func() { _, _ = file.Close(), unix.Munmap(memory) }()
	probe := newProbe(memory)
	honest := readable(far, probe)
	if honest != 0 && honest != os.Getpid() {
		t.Errorf("process %d", honest)
	}
	for i := range probe {
		lie := bytes.Clone(probe)
		lie[i] ^= 0x55
		if p := readable(far, lie); p != 0 {
			t.Errorf("byte %d is a lie, process %d is read", i, p)
		}
	}
	if err := readMemory(1<<22+1, 0, make([]byte, 1)); err == nil {
		t.Error("no process has this number")
	}
	if _, _, err := near.WriteMsgUnix(make([]byte, addressBytes+nonceBytes), unix.UnixRights(int(file.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	if r, err := takeRing(far); err != nil || r == nil || r.peer != 0 {
		t.Errorf("a probe of nothing: %+v, %v", r, err)
	}
}

// descriptors counts those of the process that are of files: tests beside this one open and close others.
func descriptors(t *testing.T, files []int) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		var of unix.Stat_t
		if unix.Fstat(fd, &of) != nil {
			continue // closed meanwhile
		}
		for _, file := range files {
			var is unix.Stat_t
			if err := unix.Fstat(file, &is); err != nil {
				t.Fatal(err)
			}
			if of.Dev == is.Dev && of.Ino == is.Ino {
				n++
			}
		}
	}
	return n
}
