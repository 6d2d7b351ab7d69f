package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// A connection begins with 4 bytes, the number of the way, and a nonce of whoever connects; a nonce and the proof of whoever listens;
// the proof of whoever connects. All have a fixed length.
const (
	nonceBytes = 16
	patience   = 10 * time.Second
)

var errStranger = errors.New("it is not of this world")

// prove shows on a new connection that it is this world's, and asks the other end for the same.
func (f *Fabric) prove(conn net.Conn, way int) error {
	defer timed(conn)()
	own := binary.BigEndian.AppendUint32(nil, uint32(way))
	own = append(own, nonce()...)
	if _, err := conn.Write(own); err != nil {
		return err
	}
	answer := make([]byte, nonceBytes+sha256.Size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	theirs, proof := answer[:nonceBytes], answer[nonceBytes:]
	if !hmac.Equal(proof, f.proof("listens", own, theirs)) {
		return errStranger
	}
	_, err := conn.Write(f.proof("connects", own, theirs))
	return err
}

// verify is the other end of prove. It returns which way it is.
func (f *Fabric) verify(conn net.Conn) (way int, err error) {
	defer timed(conn)()
	theirs := make([]byte, 4+nonceBytes)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return 0, err
	}
	own := nonce()
	if _, err := conn.Write(append(own, f.proof("listens", theirs, own)...)); err != nil {
		return 0, err
	}
	proof := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, proof); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(theirs)
	if !hmac.Equal(proof, f.proof("connects", theirs, own)) || int64(n) >= int64(len(f.ways)) || f.ways[n].To != f.w.Rank() {
		return 0, errStranger
	}
	return int(n), nil
}

// proof is what only processes of this world know of a connection.
func (f *Fabric) proof(who string, connects, listens []byte) []byte {
	mac := hmac.New(sha256.New, []byte(f.w.Epoch()))
	mac.Write([]byte(who))
	mac.Write(connects)
	mac.Write(listens)
	return mac.Sum(nil)
}

func nonce() []byte {
	b := make([]byte, nonceBytes)
	_, _ = rand.Read(b) // it never fails
	return b
}

// timed lets a connection begin within patience.
func timed(conn net.Conn) (done func()) {
	_ = conn.SetDeadline(time.Now().Add(patience)) // or the next read fails
	return func() { _ = conn.SetDeadline(time.Time{}) }
}
