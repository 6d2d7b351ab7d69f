package main

import (
	"errors"
	"strings"

	"plimsoll/internal/visible"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitNoFit  = 3
	exitUnread = 128 + 13 // what shells say of a program that SIGPIPE ended
)

// usageError is an error of what the user wrote.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as one of what the user wrote: on the command line, or in a file that it names.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// firstOf returns the first error.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// noFit is an error of a plan that would run with more memory.
type noFit struct{ error }

func (e noFit) Unwrap() error { return e.error }

// oneLine returns an error as one line that people can read.
func oneLine(err error) string {
	return visible.Clip(strings.Join(strings.Split(strings.TrimSpace(err.Error()), "\n"), "; "))
}
