//go:build !unix

package main

import "os"

// owned reports whether a file belongs to the user of this process, and whether the system tells that: this one has no such owners.
func owned(os.FileInfo) (mine, known bool) { return false, false }
