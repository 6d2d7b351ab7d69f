// Package ram says how much memory of the machine programs can still take.
package ram

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// HalfOfAvailable returns half of the RAM that programs can still take, in bytes: of the machine or, when that is
// less, of the control group that this process runs in.
func HalfOfAvailable() (int64, error) {
	table, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("available memory is not known (%w): state the memory limit", err)
	}
	available, err := parseAvailable(table)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: %w: state the memory limit", err)
	}
	if group, ok := groupAvailable("/sys/fs/cgroup"); ok {
		available = min(available, group)
	}
	return available / 2, nil
}

// parseAvailable finds the line "MemAvailable:  123 kB" and returns its bytes.
func parseAvailable(table []byte) (int64, error) {
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == "MemAvailable:" && string(fields[2]) == "kB" {
			kib, err := strconv.ParseInt(string(fields[1]), 10, 53)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no line MemAvailable")
}

// groupAvailable returns the limit less the use of a control group (version 2), false when it has no limit.
func groupAvailable(folder string) (int64, bool) {
	limit, err := readNumber(folder + "/memory.max") // "max" when there is none
	if err != nil {
		return 0, false
	}
	used, err := readNumber(folder + "/memory.current")
	return max(limit-used, 0), err == nil
}

func readNumber(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
}
