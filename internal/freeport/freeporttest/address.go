// Package freeporttest gives tests addresses to listen at.
package freeporttest

import (
	"net"
	"strconv"
	"testing"

	"plimsoll/internal/freeport"
)

// Address returns an address of this machine that is the test's own until its end, and at which nothing listens yet.
func Address(t testing.TB) string {
	t.Helper()
	port, release, err := freeport.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
