// Package sweep compares strategies over limits and bandwidths, measured on a device or simulated on a chain, and draws
// what A. Shilova's thesis draws of hers. It keeps its points in a file, and so can go on where it was interrupted. Over numbers of
// devices all is simulated (Pipelines).
package sweep

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"plimsoll/internal/atomicfile"
	"plimsoll/internal/fields"
	"plimsoll/internal/folder"
)

// Source says where the times of a point are from.
type Source string

const (
	// Measured on a device.
	Measured Source = "measured"
	// Simulated from the costs of a chain.
	Simulated Source = "simulated"
)

// Point is one strategy at one limit and bandwidth. Times are of one step, in seconds; memory is bytes: of the activations
// where it is simulated, of the whole arena where it is measured.
type Point struct {
	Key
	Device     string  `json:"device"`
	Batch      int     `json:"batch"`
	Alpha      float64 `json:"alpha"` // (limit - low) / (store-all's peak - low)
	LowBytes   int64   `json:"low_bytes"`
	Seconds    float64 `json:"seconds"` // measured or simulated; 0 when refused
	PredictedS float64 `json:"predicted_s"`
	PeakBytes  int64   `json:"peak_bytes"`
	// StoreAllS and StoreAllBytes are those of the step that recomputes and moves nothing.
	StoreAllS     float64 `json:"store_all_s"`
	StoreAllBytes int64   `json:"store_all_bytes"`
	BoundS        float64 `json:"lower_bound_s"`   // of any plan
	OffloadBoundS float64 `json:"offload_bound_s"` // of plans that recompute nothing, Proposition 3; 0: none, or without a link
	MovedBytes    int64   `json:"moved_bytes"`     // to host memory, in a step
	SavedBytes    int64   `json:"saved_bytes"`     // all saved sets together, a_0 included
	Exact         bool    `json:"exact"`           // measured: peak as predicted, result bit-identical to store-all's
	Refused       string  `json:"refused,omitempty"`
	NotRun        bool    `json:"not_run,omitempty"` // Refused is not for want of memory: the strategy does not plan such a chain
}

// Key names a point. Input is a digest of everything else that its figures depend on.
type Key struct {
	Source      Source  `json:"source"`
	Chain       string  `json:"chain"`
	Input       string  `json:"input"`
	Strategy    string  `json:"strategy"`
	MemoryBytes int64   `json:"memory_bytes"`
	Bandwidth   float64 `json:"bandwidth_bytes_per_s"` // 0: no transfers
	Duplex      bool    `json:"duplex"`
}

// At returns the point of one strategy at one limit, of the same chain.
func (p Point) At(name string, memory int64) Point {
	p.Strategy, p.MemoryBytes = name, memory
	if p.StoreAllBytes > p.LowBytes {
		p.Alpha = float64(memory-p.LowBytes) / float64(p.StoreAllBytes-p.LowBytes)
	}
	return p
}

// Ran reports whether the strategy has a plan there.
func (p *Point) Ran() bool { return p.Refused == "" }

// none says in a table why there are no figures.
func (p *Point) none() string {
	if p.NotRun {
		return notRun
	}
	return "does not fit"
}

const notRun = "not run"

// Store is the file of the points that are known: a JSON object a line.
type Store struct {
	Points []Point
	known  map[Key]bool
	inputs map[Key]string // by keys without input and memory, the input that was asked for last
	file   atomicfile.File
}

// Open reads the points of a file, which may not exist yet, and appends to it. A last line that was cut off when the
// program ended is dropped. Errors name the line.
func Open(at *folder.Dir) (*Store, error) {
	const name = "points.jsonl"
	path, s := at.Path(name), &Store{known: map[Key]bool{}, inputs: map[Key]string{}}
	data, err := at.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	lines := bufio.NewScanner(bytes.NewReader(whole))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var p Point
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w: remove the file to begin anew", path, n, err)
		}
		s.keep(p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.file, err = at.Append(name); err == nil && len(whole) < len(data) {
		err = s.file.Truncate(int64(len(whole)))
	}
	return s, err
}

// keep remembers a point; one that is known already stays.
func (s *Store) keep(p Point) {
	s.inputs[p.curve()] = p.Input
	if !s.known[p.Key] {
		s.known[p.Key] = true
		s.Points = append(s.Points, p)
	}
}

// curve names the points that differ in their limits alone.
func (k Key) curve() Key {
	k.Input, k.MemoryBytes = "", 0
	return k
}

// Has reports whether a point is known, and makes its input the one that Current goes by.
func (s *Store) Has(k Key) bool {
	s.inputs[k.curve()] = k.Input
	return s.known[k]
}

// Current returns the points without those that another input has taken the place of: of a chain that was measured again, say.
func (s *Store) Current() (points []Point) {
	for _, p := range s.Points {
		if s.inputs[p.curve()] == p.Input {
			points = append(points, p)
		}
	}
	return points
}

// Add writes a point.
func (s *Store) Add(p Point) error {
	line, err := fields.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return err
	}
	s.keep(p)
	return nil
}

// Close closes the file.
func (s *Store) Close() error { return s.file.Close() }

// WriteCSV writes the points to points.csv, in SI base units.
func WriteCSV(at *folder.Dir, points []Point) error {
	rows := [][]string{{
		"source", "chain", "strategy", "memory_bytes", "bandwidth_bytes_per_s", "duplex", "alpha", "seconds", "predicted_s", "peak_bytes",
		"store_all_s", "store_all_bytes", "lower_bound_s", "offload_bound_s", "moved_bytes", "saved_bytes", "exact", "refused",
	}}
	for i := range points {
		rows = append(rows, points[i].record())
	}
	return writeCSV(at, rows)
}

func writeCSV(at *folder.Dir, rows [][]string) error {
	return at.Write("points.csv", func(w io.Writer) error { return csv.NewWriter(w).WriteAll(rows) })
}

func float(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func whole(n int64) string { return strconv.FormatInt(n, 10) }

func (p *Point) record() []string {
	return []string{
		string(p.Source), p.Chain, p.Strategy, whole(p.MemoryBytes), float(p.Bandwidth), strconv.FormatBool(p.Duplex), float(p.Alpha),
		float(p.Seconds), float(p.PredictedS), whole(p.PeakBytes), float(p.StoreAllS), whole(p.StoreAllBytes), float(p.BoundS),
		float(p.OffloadBoundS), whole(p.MovedBytes), whole(p.SavedBytes), strconv.FormatBool(p.Exact), p.Refused,
	}
}
