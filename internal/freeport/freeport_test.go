package freeport

import (
	"net"
	"strconv"
	"testing"
)

// Reserved ports differ, can be listened at by who knows them, again and again, and on any interface.
func TestReserve(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 200 {
		port, release, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
		for _, host := range []string{"127.0.0.1", "127.0.0.1", ""} {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := net.Listen("tcp", l.Addr().String()); err == nil {
				t.Fatal("two listen")
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
