package cores

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usualCache is the largest cache of a processor that does not say: the third level of many servers, in bytes.
const usualCache = 32 << 20

// LargestCache returns the bytes of the largest cache of the first processor, which others may share: what has gone through more memory
// since is no longer there.
func LargestCache() int64 { return largestCache("/sys/devices/system/cpu/cpu0/cache") }

// largestCache reads the files of a folder with a folder for each cache.
func largestCache(folder string) int64 {
	files, err := filepath.Glob(filepath.Join(folder, "index*", "size"))
	if err != nil {
		return usualCache
	}
	largest := int64(0)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			largest = max(largest, cacheSize(strings.TrimSpace(string(text))))
		}
	}
	if largest == 0 {
		return usualCache
	}
	return largest
}

// cacheSize reads "491520K"; 0 for what is no size.
func cacheSize(text string) int64 {
	unit := int64(1)
	switch {
	case strings.HasSuffix(text, "K"):
		unit = 1 << 10
	case strings.HasSuffix(text, "M"):
		unit = 1 << 20
	}
	n, err := strconv.ParseInt(strings.TrimRight(text, "KM"), 10, 64)
	if err != nil || n < 0 || n > 1<<40/unit {
		return 0
	}
	return n * unit
}
