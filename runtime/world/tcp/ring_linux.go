package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// whole are the seals of memory that nobody can take away from whoever has mapped it.
const whole = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// The answers of takeRing.
const (
	noRing        byte = iota
	ringOnly           // the memory is mapped
	ringAndMemory      // and the offering process's own memory can be read
)

// offerRing hands memory for a ring to the process that a way ends at, and returns nil where that or the other process has none.
// Messages then go through the socket. On the wire: a probe with the memory, or without; a byte of the other process. A probe is
// where 32 random bytes are, and what they are (see takeRing).
func offerRing(conn net.Conn) (*ring, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	var rights []byte
	file, memory := newMemory()
	probe := make([]byte, addressBytes+nonceBytes)
	if file != nil {
		defer func() { _ = file.Close() }() // the mappings stay
		rights = unix.UnixRights(int(file.Fd()))
		probe = newProbe(memory)
	}
	if _, _, err := c.WriteMsgUnix(probe, rights, nil); err != nil {
		return nil, err
	}
	var taken [1]byte
	if err := readFull(c, taken[:]); err != nil || taken[0] == noRing || memory == nil {
		return nil, err
	}
	r := newRing(memory)
	if taken[0] == ringAndMemory {
		r.peer = os.Getpid() // whose memory the other one reads
	}
	return r, nil
}

// takeRing takes what offerRing hands over. The other process's own memory can be read if the system tells who it is and lets this one
// do so (ptrace(2), access mode checks). The data read must be those that it names.
func takeRing(conn net.Conn) (*ring, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	probe := make([]byte, addressBytes+nonceBytes)
	rights := make([]byte, unix.CmsgSpace(4))
	got, n, _, _, err := c.ReadMsgUnix(probe, rights)
	if err == nil {
		err = readFull(c, probe[got:])
	}
	if err != nil {
		return nil, err
	}
	memory, err := mapped(rights[:n])
	if err != nil { // it goes without
		_, err = c.Write([]byte{noRing})
		return nil, err
	}
	r, answer := newRing(memory), ringOnly
	if r.peer = readable(c, probe); r.peer != 0 {
		answer = ringAndMemory
	}
	if _, err := c.Write([]byte{answer}); err != nil {
		return nil, err
	}
	return r, nil
}

// newProbe writes random bytes into memory.
func newProbe(memory []byte) []byte {
	n := nonce()
	copy(memory, n[:])
	return append(binary.BigEndian.AppendUint64(nil, addressOf(memory)), n[:]...)
}

// readable returns the process at the other end of a connection, if its memory holds what a probe says, else 0.
func readable(c *net.UnixConn, probe []byte) (process int) {
	var who *unix.Ucred
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { who, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	}
	if err != nil || who == nil || who.Pid <= 0 { // 0: of another namespace
		return 0
	}
	var there [nonceBytes]byte
	err = readMemory(int(who.Pid), binary.BigEndian.Uint64(probe), there[:])
	if err != nil || !bytes.Equal(there[:], probe[addressBytes:]) {
		return 0
	}
	return int(who.Pid)
}

func addressOf(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// readMemory fills p from the memory of a process.
func readMemory(process int, address uint64, p []byte) error {
	for len(p) > 0 {
		local := []unix.Iovec{{Base: unsafe.SliceData(p)}}
		local[0].SetLen(len(p))
		n, err := unix.ProcessVMReadv(process, local, []unix.RemoteIovec{{Base: uintptr(address), Len: len(p)}}, 0)
		if err == nil && n <= 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("tcp: reading %d bytes of process %d: %w", len(p), process, err)
		}
		p, address = p[n:], address+uint64(n)
	}
	return nil
}

func newRing(memory []byte) *ring {
	r := &ring{memory: memory, free: slots}
	runtime.AddCleanup(r, func(m []byte) { _ = unix.Munmap(m) }, memory)
	return r
}

// newMemory returns memory that is no file of a folder, and its mapping here; nil where the system gives none.
func newMemory() (*os.File, []byte) {
	fd, err := unix.MemfdCreate("plimsoll", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil
	}
	file := os.NewFile(uintptr(fd), "plimsoll")
	err = unix.Ftruncate(fd, slots*slotBytes)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, whole)
	}
	var memory []byte
	if err == nil {
		memory, err = unix.Mmap(fd, 0, slots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		_ = file.Close() // it is not used
		return nil, nil
	}
	return file, memory
}

// mapped maps the memory that came with a message.
func mapped(rights []byte) ([]byte, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("tcp: %d control messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // the mapping stays
		}
	}()
	if len(fds) != 1 {
		return nil, fmt.Errorf("tcp: %d descriptors", len(fds))
	}
	var s unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fds[0], &s)
	}
	if err != nil || seals&whole != whole || s.Size != slots*slotBytes {
		return nil, fmt.Errorf("tcp: memory of %d bytes with seals %#x: %w", s.Size, seals, err)
	}
	return unix.Mmap(fds[0], 0, slots*slotBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
