//go:build cuda && linux && amd64

package cuda

import (
	"errors"

	"gorgonia.org/cu"

	"plimsoll/runtime/cuda"
	"plimsoll/runtime/cuda/driver"
)

// A trial launches a graph of so many repeats so many times; the first time, which warms up, does not count.
const (
	repeats = 10
	trials  = 6
	enough  = 100 // milliseconds, behind which slow launches end with fewer
)

// clock returns the microseconds of one run of a launch: those of the fastest graph of repeats, shared out. Steps are launched as
// graphs, too; one launch alone on an idle stream would cost more than a small kernel takes. The context is current.
func clock(_ algorithm, launch cuda.Launch) (best float64, err error) {
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Destroy()) }()
	exec, err := repeated(stream, launch)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, exec.Destroy()) }()
	var ends [2]cu.Event
	for i := range ends {
		if ends[i], err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, cu.DestroyEvent(&ends[i])) }()
	}
	var spent float64
	for run := 0; run < 2 || run < trials && spent < enough; run++ {
		ms, err := lap(stream, ends, exec)
		if err != nil {
			return 0, err
		}
		spent += ms
		if t := 1000 * ms / repeats; run == 1 || run > 1 && t < best {
			best = t
		}
	}
	return best, nil
}

// repeated captures repeats of a launch. The launch runs once before, outside: what loads code or allocates when it is first
// called may not be captured.
func repeated(stream cu.Stream, launch cuda.Launch) (exec driver.Exec, err error) {
	if err := errors.Join(launch.Issue(stream), stream.Synchronize()); err != nil {
		return exec, err
	}
	if err := driver.BeginCapture(stream); err != nil {
		return exec, err
	}
	for range repeats {
		if err == nil {
			err = launch.Issue(stream)
		}
	}
	graph, ended := driver.EndCapture(stream)
	if err = errors.Join(err, ended); err == nil {
		exec, err = graph.Instantiate()
	}
	return exec, errors.Join(err, graph.Destroy())
}

// lap returns the milliseconds of one launch of the graph.
func lap(stream cu.Stream, ends [2]cu.Event, exec driver.Exec) (float64, error) {
	for _, f := range []func() error{
		func() error { return ends[0].Record(stream) },
		func() error { return exec.Launch(stream) },
		func() error { return ends[1].Record(stream) },
		stream.Synchronize,
	} {
		if err := f(); err != nil {
			return 0, errors.Join(err, stream.Synchronize())
		}
	}
	return ends[0].Elapsed(ends[1])
}
