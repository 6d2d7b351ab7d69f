//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// owned reports whether a file belongs to the user of this process, and whether the system tells that.
func owned(info os.FileInfo) (mine, known bool) {
	s, known := info.Sys().(*syscall.Stat_t)
	return known && int(s.Uid) == os.Geteuid(), known
}

// wake lets a process that is stopped go on.
func wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) } // it may have ended

// causeVariable has the number of the descriptor through which a process tells why it failed.
const causeVariable = "PLIMSOLL_CAUSE_FD"

// handCause gives a process that is to start an end of a pipe, which is to be closed here when it has started.
func (m *member) handCause() (far *os.File, err error) {
	if m.causes, far, err = os.Pipe(); err != nil {
		return nil, err
	}
	m.Env = append(m.Env, fmt.Sprintf("%s=%d", causeVariable, 3+len(m.ExtraFiles)))
	m.ExtraFiles = append(m.ExtraFiles, far)
	return far, nil
}

// launcher returns the pipe to the launch that has started this process; nil where none has.
func launcher() *causePipe {
	fd, err := strconv.Atoi(os.Getenv(causeVariable))
	_ = os.Unsetenv(causeVariable) // it is not for processes that this one starts
	rank, noRank := strconv.Atoi(os.Getenv("RANK"))
	if err != nil || noRank != nil || fd < 3 {
		return nil
	}
	syscall.CloseOnExec(fd)
	return &causePipe{to: os.NewFile(uintptr(fd), "launch"), rank: rank}
}
