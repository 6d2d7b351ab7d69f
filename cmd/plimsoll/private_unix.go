//go:build unix

package main

import (
	"os"
	"syscall"
)

// owned reports whether a file belongs to the user of this process, and whether the system tells that.
func owned(info os.FileInfo) (mine, known bool) {
	s, known := info.Sys().(*syscall.Stat_t)
	return known && int(s.Uid) == os.Geteuid(), known
}
