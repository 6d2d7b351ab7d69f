//go:build unix && !race

package host

import "golang.org/x/sys/unix"

// mapBytes returns zeroed memory on a page boundary that belongs to nobody else; pages come when they are touched.
func mapBytes(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil {
		askHugePages(b)
	}
	return b, err
}

func unmapBytes(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return unix.Munmap(b)
}
