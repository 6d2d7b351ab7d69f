//go:build !linux

package folder

import "os"

// file is an open file.
type file struct{ *os.File }
