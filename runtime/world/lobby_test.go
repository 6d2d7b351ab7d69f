package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// knock connects strangers to rank 0 once it listens. Their end is read until rank 0 closes it, and after each of them do is called.
func (n *network) knock(t *testing.T, strangers int, do func(net.Conn)) {
	t.Helper()
	for range strangers {
		conn, err := n.dial(t.Context(), nil, "")
		for ; err != nil; conn, err = n.dial(t.Context(), nil, "") {
			time.Sleep(time.Millisecond) // of the test's own time
		}
		do(conn)
	}
}

// say lets a stranger say something, and stay until rank 0 has closed its connection.
func say(text string) func(net.Conn) {
	return func(c net.Conn) {
		go func() {
			_, _ = io.WriteString(c, text)
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

// However many strangers wait at rank 0, whether they say nothing or something, a rank comes in before any of them is sent away.
func TestRanksComeThroughACrowd(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\x16\x03\x01\x02\x00\x01"} { // of which the second may begin a handshake
		bubble(t, fmt.Sprintf("%q", text), func(t *testing.T, n *network) {
			before, done := time.Now(), make(chan outcome)
			go func() { done <- n.join(t.Context(), 2, []int{0}, nil)[0] }()
			n.knock(t, 2*strangers, say(text))
			all := []outcome{n.join(t.Context(), 2, []int{1}, nil)[0], <-done}
			if took := time.Since(before); took >= firstBytes || all[0].err != nil || all[1].err != nil {
				t.Fatalf("it took %v: %v, %v", took, all[0].err, all[1].err)
			}
			each([]*World{all[0].World, all[1].World}, func(w *World) { _ = w.Leave(t.Context()) })
		})
	}
}

// Who says nothing is sent away after a second, who does not end what it began to say after ten.
func TestGuestsHaveLittleTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": firstBytes, "\x16\x03\x01\x02\x00\x01": handshake} {
		bubble(t, fmt.Sprintf("%q", text), func(t *testing.T, n *network) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan outcome)
			go func() { done <- n.join(ctx, 2, []int{0}, nil)[0] }()
			n.knock(t, 1, func(c net.Conn) {
				before := time.Now()
				if _, err := io.WriteString(c, text); err != nil && text != "" {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, c)
				if took := time.Since(before); took != want {
					t.Errorf("it was sent away after %v, want %v", took, want)
				}
			})
			cancel()
			<-done
		})
	}
}

// A scan of ports does not hide who is missing, and which process was turned away for what.
func TestAScanHidesNoProcess(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(t *testing.T, n *network) {
		done := make(chan outcome)
		go func() { done <- n.join(t.Context(), 2, []int{0}, nil)[0] }()
		n.knock(t, 50, func(c net.Conn) { _ = c.Close() })
		n.knock(t, 50, say("GET / HTTP/1.1\r\n\r\n"))
		for range 3 { // which a launcher starts again, say
			out := n.join(t.Context(), 2, []int{1}, func(_ int, o *Options) { o.Secret = []byte("another secret, as long") })
			if e, ok := errors.AsType[*RefusalError](out[0].err); !ok || e.Reason != OtherSecret {
				t.Errorf("rank 1: %v", out[0].err)
			}
		}
		got := (<-done).err.Error()
		const want = "rank 1 of 2 missing after 2m0s at rank0:1; turned away: pipe: it has another secret (3 times), connections of strangers (100, the last from pipe: "
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// from is a connection of an address.
type from struct {
	net.Conn
	address netip.AddrPort
	closed  bool
}

func (c *from) RemoteAddr() net.Addr        { return net.TCPAddrFromAddrPort(c.address) }
func (c *from) SetDeadline(time.Time) error { return nil }
func (c *from) Close() error                { c.closed = true; return nil }

// In a full lobby the oldest guest of the address with the most guests gives way.
func TestWhoGivesWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, guests string // an address each
		gone         int
	}{
		{"the crowd's oldest", "10.0.0.1 10.0.0.2 10.0.0.2 10.0.0.1 10.0.0.2", 1},
		{"the newcomer's own", "10.0.0.1 10.0.0.2 10.0.0.2", 1},
		{"one each", "10.0.0.1 10.0.0.2 10.0.0.3", 0},
		{"one network of IPv6", "10.0.0.1 2001:db8::1 2001:db8::2 2001:db8:0:1::1", 1},
		{"one address of IPv4", "10.0.0.2 10.0.0.1 ::ffff:10.0.0.1", 1},
	} {
		addresses := strings.Fields(c.guests)
		l := NewLobby(t.Context(), len(addresses)-1)
		var conns []*from
		for i, a := range addresses {
			conns = append(conns, &from{address: netip.AddrPortFrom(netip.MustParseAddr(a), uint16(1000+i))})
			l.enter(conns[i])
		}
		for i, conn := range conns {
			if conn.closed != (i == c.gone) {
				t.Errorf("%s: guest %d of %s is closed: %v", c.name, i, c.guests, conn.closed)
			}
		}
	}
}

// A guest that has given way cannot stay, whatever it has said meanwhile; another one can.
func TestWhoGaveWayDoesNotStay(t *testing.T) {
	t.Parallel()
	l := NewLobby(t.Context(), 1)
	gone, here := l.enter(&from{address: netip.MustParseAddrPort("10.0.0.1:1")}), l.enter(&from{address: netip.MustParseAddrPort("10.0.0.2:1")})
	if err := gone.Leave(); !errors.Is(err, errGaveWay) {
		t.Error(err)
	}
	if err := here.Leave(); err != nil {
		t.Error(err)
	}
}
