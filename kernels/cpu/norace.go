//go:build !race && cgo

package cpu

func (access) report() {}
