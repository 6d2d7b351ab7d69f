package main

import "syscall"

// ofParent makes a process end when the one that started it is killed. It is in a group of its own: a terminal's Ctrl-C comes to it once,
// by its parent.
func ofParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
