// Package dynlib opens dynamic libraries, where there is cgo.
package dynlib
