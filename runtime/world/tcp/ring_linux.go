package tcp

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// whole are the seals of memory that nobody can take away from whoever has mapped it.
const whole = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// offerRing hands memory for a ring to the process that a way ends at, and returns nil where that or the other process has none: then
// messages go through the socket. On the wire: a byte with the memory, or without; a byte of the other process, 1 when it has it, too.
func offerRing(conn net.Conn) (*ring, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	var rights []byte
	file, memory := newMemory()
	if file != nil {
		defer func() { _ = file.Close() }() // the mappings stay
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := c.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return nil, err
	}
	var taken [1]byte
	if err := readFull(c, taken[:]); err != nil || taken[0] != 1 || memory == nil {
		return nil, err
	}
	return newRing(memory), nil
}

// takeRing takes what offerRing hands over.
func takeRing(conn net.Conn) (*ring, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil
	}
	var b [1]byte
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(b[:], rights)
	if err != nil {
		return nil, err
	}
	memory, err := mapped(rights[:n])
	if err != nil { // it goes without
		_, err = c.Write([]byte{0})
		return nil, err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return nil, err
	}
	return newRing(memory), nil
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
