// Command plimsoll trains neural networks under a memory limit that they do not fit in. It measures a chain of
// layers, plans the fastest schedule for the limit, runs exactly that schedule, and reports prediction beside
// measurement.
package main

import (
	"context"
	"os"

	"plimsoll/runtime/world/mpi"
)

func main() {
	mpi.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
