//go:build !linux

package main

import "syscall"

// ofParent would make a process end when the one that started it is killed; this system cannot do that.
func ofParent() *syscall.SysProcAttr { return nil }
