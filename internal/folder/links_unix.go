//go:build unix

package folder

import (
	"io/fs"
	"syscall"
)

// names returns how many names a file has.
func names(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink) //nolint:unconvert // other systems count in other types
	}
	return 1
}
