package freeport

import (
	"errors"
	"fmt"
	"syscall"
)

// Reserve returns a port of 127.0.0.1 at which nothing listens. Until release the system gives the port to no process that asks for any
// port or connects. A process that asks for it by number can listen at it. A bound socket that does not listen holds the port, and both
// sockets set SO_REUSEADDR, as package net always does.
func Reserve() (port int, release func(), err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("no free port: %w", err)
		}
	}()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = syscall.Close(fd) } // of a socket that was never connected
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err != nil {
		release()
		return 0, nil, err
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		release()
		return 0, nil, err
	}
	return at.(*syscall.SockaddrInet4).Port, release, nil
}
