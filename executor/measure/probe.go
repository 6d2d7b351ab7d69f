package measure

import (
	"cmp"

	"plimsoll/kernels"
	"plimsoll/runtime"
)

// Bytes of the first copies of a measurement, of the longest ones, and of the longest window, which is more than caches hold.
const (
	firstProbe = 4 << 10
	probeBytes = 4 << 20
	mostWindow = 64 << 20
)

// windows are the bytes of memory that a direction of a measurement of the link has for itself on each side. Copies go through them
// from one end to the other, as what plans transfer is seldom in a cache.
type windows struct{ device, host int64 }

// windowsBeside returns the windows beside what takes extent bytes of limit, where host bytes of host memory are left.
func windowsBeside(extent, limit, host int64) (w windows) {
	room := limit - kernels.Align(extent)
	if room < 2*kernels.Alignment {
		room = extent
	}
	half := func(bytes int64) int64 { return bytes / 2 / kernels.Alignment * kernels.Alignment }
	w.host = min(max(kernels.Align(extent), probeBytes), mostWindow)
	w.host = min(w.host, max(half(host), probeBytes))
	w.device = min(half(room), w.host)
	return w
}

// limit returns the end of the windows of the device: behind what takes extent bytes, where limit has that much, and otherwise in it.
func (w windows) limit(extent, limit int64) int64 {
	return min(kernels.Align(extent)+2*w.device, max(limit, extent)) / kernels.Alignment * kernels.Alignment
}

// probe is one direction of the link.
type probe struct {
	stream   runtime.Stream
	dst, src runtime.Span // the whole windows
	bytes    int64        // of a copy
	copied   int64        // copies

	start, end, begin runtime.Event
}

// newProbe opens a direction of copies from one window to another.
func newProbe(on runtime.Device, name string, dst, src runtime.Span) (d *probe, err error) {
	d = &probe{dst: dst, src: src}
	d.stream, err = on.NewStream(name)
	for _, ev := range []*runtime.Event{&d.start, &d.end, &d.begin} {
		var failure error
		*ev, failure = on.NewEvent()
		err = cmp.Or(err, failure)
	}
	return d, err
}

// copy queues a copy, of what comes next in each window.
func (d *probe) copy() error {
	next := func(window runtime.Span) runtime.Span {
		return window.Part(d.copied%(window.Bytes/d.bytes)*d.bytes, d.bytes)
	}
	defer func() { d.copied++ }()
	return d.stream.Copy(next(d.dst), next(d.src))
}

// keepCopying copies until it is told to stop; one copy is queued while another runs. It returns bytes/s.
func (d *probe) keepCopying(stop <-chan struct{}) (bytesPerSec float64, err error) {
	copies := 0
	for err = cmp.Or(d.stream.Record(d.begin), d.begin.Synchronize()); err == nil; copies++ {
		select {
		case <-stop:
			if err = cmp.Or(d.stream.Record(d.end), d.stream.Synchronize()); err != nil {
				return 0, err
			}
			took, err := d.end.Since(d.begin)
			return float64(copies) * float64(d.bytes) / max(took.Seconds(), 1e-9), err
		default:
		}
		err = cmp.Or(d.stream.Record(d.start), d.copy(), d.start.Synchronize())
	}
	return 0, err
}

// whileCopying runs do while copies run, and returns their bytes/s.
func whileCopying(copies []*probe, do func() error) (rates []float64, err error) {
	stop, failed := make(chan struct{}), make(chan error, len(copies))
	rates = make([]float64, len(copies))
	for i, d := range copies {
		go func() {
			var err error
			rates[i], err = d.keepCopying(stop)
			failed <- err
		}()
	}
	err = do()
	close(stop)
	for range copies {
		err = cmp.Or(err, <-failed)
	}
	return rates, err
}
