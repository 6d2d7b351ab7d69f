package measure

import "plimsoll/kernels"

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
