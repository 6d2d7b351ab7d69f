package cores

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit of /proc/stat (USER_HZ).
const tick = 10 * time.Millisecond

// Waits returns how long the threads of this process have waited for a core, together, and how long the host of a virtual machine has
// kept its cores from it, together; 0 where the system does not say.
func Waits() (waited, stolen time.Duration) {
	tasks, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return 0, 0
	}
	for _, path := range tasks {
		waited += time.Duration(field(path, nil, 1))
	}
	return waited, time.Duration(field("/proc/stat", []byte("cpu "), 7)) * tick
}

// field returns a number of the line that begins so, 0 where it is not there: threads end while they are counted.
func field(path string, begins []byte, n int) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	rest, ok := bytes.CutPrefix(text, begins)
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if n >= len(fields) {
		return 0
	}
	v, _ := strconv.ParseInt(string(fields[n]), 10, 64)
	return v
}
