//go:build unix && !race

package host_test

import (
	"testing"

	"plimsoll/runtime/host"
)

// Limits are the user's word; when the system has less, Reserve says so and may be repeated.
func TestReserveSaysWhatTheSystemRefused(t *testing.T) {
	t.Parallel()
	const huge = 1 << 60
	d := device(t, host.Config{Memory: huge, HostMemory: huge})
	wantText(t, d.Reserve(huge, 8), "cpu: reserve: arena of 1.000 EiB: ")
	wantText(t, d.Reserve(8, huge), "cpu: reserve: host space of 1.000 EiB: ")
	must(t, d.Reserve(8, 8))
	must(t, d.Close())
}
