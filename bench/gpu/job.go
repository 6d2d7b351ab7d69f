package main

import "fmt"

// job is one model at one size.
type job struct {
	model        string
	image, batch int
}

func (j job) peer(precision, mode string) string {
	return fmt.Sprintf("%s:%d:%d:%s:%s", j.model, j.image, j.batch, precision, mode)
}
