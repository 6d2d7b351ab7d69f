//go:build unix && !linux && !race

package host

// askHugePages does nothing where the system chooses its pages alone.
func askHugePages([]byte) {}
