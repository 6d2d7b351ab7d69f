//go:build !unix

package main

import "os"

// owned reports whether a file belongs to the user of this process, and whether the system tells that: this one has no such owners.
func owned(os.FileInfo) (mine, known bool) { return false, false }

// wake would let a process that is stopped go on; this system stops none.
func wake(*os.Process) {}

// handCause would give a process an end of a pipe; this system cannot.
func (m *member) handCause() (far *os.File, err error) { return nil, nil }

// launcher would return the pipe to launch; there is none.
func launcher() *causePipe { return nil }
