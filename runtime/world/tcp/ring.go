package tcp

import (
	"encoding/binary"
	"net"
	"runtime"
)

const (
	slots     = 4
	slotBytes = 256 << 10 // small enough for a core's cache: what is copied in is copied out of it
	// shortest is the length of messages from which a ring is faster than the socket alone.
	shortest = 16 << 10
	// addressBytes is the length of where a message is, big-endian.
	addressBytes = 8
)

// ring is memory that both processes of a way have. Data that go through it are copied twice, as through a socket, but without the
// system, which takes three times as long. The way's connection says which slots are full, a byte for each, and backwards which are
// free again: so whoever waits still learns when the other process dies.
//
// Where the system lets a receiver read the sender's memory (cross-memory attach), a message longer than a slot is copied once.
// The sender says where it is, and waits until it has been read.
type ring struct {
	memory []byte // slots of slotBytes
	slot   int    // the next one
	free   int    // of the sender
	peer   int    // process whose memory is read; 0 where none may be
	tokens [slots]byte
	where  [addressBytes]byte
	said   []byte // of the sender, and not sent yet
}

// A token goes forwards for each slot that is full, and backwards for one that is free again and for a message that has been read where
// it was.
var tokenFull, tokenFree, tokenRead = []byte{0}, []byte{0}, []byte{1}

// turn returns the next slot.
func (r *ring) turn() []byte {
	s := r.memory[r.slot*slotBytes:][:slotBytes]
	r.slot = (r.slot + 1) % slots
	return s
}

// attaches reports whether a message of n bytes is read from the sender's memory. Both ends say the same.
func (r *ring) attaches(n int) bool { return r.peer != 0 && n > slotBytes }

// write sends p, behind its header, and returns when p may be written again. The header goes with what first follows it, so that it
// wakes nobody who would then wait for that.
func (r *ring) write(conn net.Conn, header, p []byte) error {
	r.said = append(r.said[:0], header...)
	if r.attaches(len(p)) {
		return r.show(conn, p)
	}
	for len(p) > 0 {
		for r.free == 0 {
			if _, err := r.await(conn); err != nil {
				return err
			}
		}
		p = p[copy(r.turn(), p):]
		r.free--
		if err := r.say(conn, tokenFull...); err != nil {
			return err
		}
	}
	return nil
}

// say sends what is not sent yet, and more.
func (r *ring) say(conn net.Conn, more ...byte) error {
	r.said = append(r.said, more...)
	_, err := conn.Write(r.said)
	r.said = r.said[:0]
	return err
}

// show sends where p is, and waits until it has been read.
func (r *ring) show(conn net.Conn, p []byte) error {
	defer runtime.KeepAlive(p)
	binary.BigEndian.PutUint64(r.where[:], addressOf(p))
	if err := r.say(conn, r.where[:]...); err != nil {
		return err
	}
	for {
		if read, err := r.await(conn); read || err != nil {
			return err
		}
	}
}

// await counts the tokens that have come, and reports whether one is tokenRead; none comes behind it.
func (r *ring) await(conn net.Conn) (read bool, err error) {
	n, err := conn.Read(r.tokens[:])
	for _, token := range r.tokens[:n] {
		if token == tokenRead[0] {
			read = true
		} else {
			r.free++
		}
	}
	return read, err
}

// read fills p.
func (r *ring) read(conn net.Conn, p []byte) error {
	if r.attaches(len(p)) {
		return r.look(conn, p)
	}
	for len(p) > 0 {
		left := (len(p) + slotBytes - 1) / slotBytes // what follows them is the next message's
		n, err := conn.Read(r.tokens[:min(left, slots)])
		if err != nil {
			return err
		}
		for range n {
			p = p[copy(p, r.turn()):]
			_, _ = conn.Write(tokenFree) // whoever has sent its last message may have closed
		}
	}
	return nil
}

// look copies what show shows.
func (r *ring) look(conn net.Conn, p []byte) error {
	if err := readFull(conn, r.where[:]); err != nil {
		return err
	}
	if err := readMemory(r.peer, binary.BigEndian.Uint64(r.where[:]), p); err != nil {
		return err
	}
	_, err := conn.Write(tokenRead)
	return err
}
