//go:build !linux

package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Reserve returns a port of 127.0.0.1 at which nothing listens, below those that systems give to who asks for any. Nothing holds it.
func Reserve() (port int, release func(), err error) {
	for range 100 {
		port = 20000 + rand.IntN(10000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, func() {}, l.Close()
		}
	}
	return 0, nil, fmt.Errorf("no free port: %w", err)
}
