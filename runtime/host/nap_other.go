//go:build !linux

package host

import "time"

func nap(d time.Duration) { time.Sleep(d) }
