package profiles

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/internal/names"
	"plimsoll/internal/visible"
	"plimsoll/planner/chain"
)

// column says what a column of a table of layers holds.
type column struct {
	name string // without the unit
	time bool   // seconds; else bytes
	put  func(l *chain.Layer, x float64)
}

func pointer[T any](x T) *T { return &x }

// columns are the columns of a table: the fields of a chain file's layers.
var columns = []column{
	{"forward", true, func(l *chain.Layer, x float64) { l.ForwardS = x }},
	{"backward", true, func(l *chain.Layer, x float64) { l.BackwardS = x }},
	{"output", false, func(l *chain.Layer, x float64) { l.OutputBytes = int64(x) }},
	{"saved", false, func(l *chain.Layer, x float64) { l.SavedBytes = int64(x) }},
	{"gradient", false, func(l *chain.Layer, x float64) { l.GradientBytes = int64(x) }},
	{"forward_overhead", false, func(l *chain.Layer, x float64) { l.ForwardOverheadBytes = int64(x) }},
	{"backward_overhead", false, func(l *chain.Layer, x float64) { l.BackwardOverheadBytes = int64(x) }},
	{"weight", false, func(l *chain.Layer, x float64) { l.WeightBytes = int64(x) }},
	{"discard_forward", true, func(l *chain.Layer, x float64) { l.DiscardForwardS = &x }},
	{"discard_overhead", false, func(l *chain.Layer, x float64) { l.DiscardOverheadBytes = pointer(int64(x)) }},
	{"backward_input", true, func(l *chain.Layer, x float64) { l.BackwardInputS = &x }},
	{"backward_weight", true, func(l *chain.Layer, x float64) { l.BackwardWeightS = &x }},
}

// required are the columns that have no default.
var required = []string{"forward", "backward", "output"}

// units are the factors behind a column's name, of times and of sizes.
var (
	timeUnits = map[string]float64{"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9} // how many are a second
	sizeUnits = map[string]float64{"bytes": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
)

// looksLikeTable reports whether a text begins with the names of a table's columns.
func looksLikeTable(text []byte) bool {
	head, _, _ := bytes.Cut(text, []byte("\n"))
	return slices.ContainsFunc(strings.Split(string(head), ","), func(cell string) bool {
		c, _ := columnOf(cell)
		return c != nil && slices.Contains(required, c.name)
	})
}

// columnOf finds a column by its name with a unit, "forward_ms", and returns what turns its numbers into seconds or bytes.
func columnOf(title string) (*column, func(float64) float64) {
	title = strings.ToLower(strings.TrimSpace(title))
	at := strings.LastIndexByte(title, '_')
	if at < 0 {
		return nil, nil
	}
	i := slices.IndexFunc(columns, func(c column) bool { return c.name == title[:at] })
	if i < 0 {
		return nil, nil
	}
	if per := timeUnits[title[at+1:]]; columns[i].time && per > 0 {
		return &columns[i], func(x float64) float64 { return x / per }
	}
	if factor := sizeUnits[title[at+1:]]; !columns[i].time && factor > 0 {
		return &columns[i], func(x float64) float64 { return math.Round(x * factor) }
	}
	return nil, nil
}

// ParseTable reads a table of layers, CSV with a row for each layer in order. Its first row names the columns: "name" and the fields of
// a chain file's layers, each with its unit, as in forward_ms, backward_us, output_bytes or saved_mib. Forward, backward and output
// are required, an empty cell or a missing column is the field's default, and columns of other names are passed over. A first row
// called "input" is no layer: its output is a_0. A last row called "loss" is the loss; else one that costs nothing is added.
// Errors: *fields.FileError, those of chain.Validate.
func ParseTable(file string, data []byte) (*chain.Chain, error) {
	t := &table{file: file, reader: csv.NewReader(bytes.NewReader(data))}
	t.reader.FieldsPerRecord = 0 // as many as the first row has
	t.reader.TrimLeadingSpace = true
	if err := t.head(); err != nil {
		return nil, err
	}
	c := &chain.Chain{Name: visible.Name(file, ".csv", ".txt")}
	for l, err := t.layer(); l != nil || err != nil; l, err = t.layer() {
		switch {
		case err != nil:
			return nil, err
		case isInput(l) && len(c.Layers) == 0:
			c.InputBytes = l.OutputBytes
		default:
			c.Layers = append(c.Layers, *l)
		}
	}
	if n := len(c.Layers); n == 0 || !strings.EqualFold(c.Layers[n-1].Name, "loss") {
		c.Layers = append(c.Layers, chain.Layer{Name: "loss"})
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// table is a table while it is read.
type table struct {
	file   string
	reader *csv.Reader
	titles []string
	of     []*column // of each title, nil of others
	scale  []func(float64) float64
	named  int // the title of names, -1 without
}

func (t *table) fail(field, value, reason string) error {
	line := 1
	if len(t.of) > 0 {
		line, _ = t.reader.FieldPos(0)
	}
	return &fields.FileError{File: t.file, Line: line, Field: field, Value: value, Reason: reason}
}

// head reads the names of the columns.
func (t *table) head() (err error) {
	if t.titles, err = t.reader.Read(); err != nil {
		return t.failRow(err)
	}
	t.titles[0] = strings.TrimPrefix(t.titles[0], "\ufeff") // which some programs begin a file with
	t.named = slices.IndexFunc(t.titles, func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "name") })
	found := map[string]bool{}
	for i, title := range t.titles {
		c, scale := columnOf(title)
		switch {
		case c == nil && i != t.named:
			if err := t.slip(title); err != nil {
				return err
			}
		case c != nil && found[c.name]:
			return t.fail("column", title, "is there twice")
		case c != nil:
			found[c.name] = true
		}
		t.of, t.scale = append(t.of, c), append(t.scale, scale)
	}
	for _, name := range required {
		if !found[name] {
			return t.fail("column", name, `is missing, with its unit, as in "forward_ms" or "output_bytes"`)
		}
	}
	return nil
}

// slip refuses a title that is nearly that of a column: its numbers would be missed.
func (t *table) slip(title string) error {
	var known []string
	for _, c := range columns {
		known = append(known, c.name+map[bool]string{true: "_ms", false: "_bytes"}[c.time])
	}
	closest := names.Closest(strings.TrimSpace(title), known)
	if len(closest) == 0 {
		return nil
	}
	return t.fail("column", title, "is no column with a unit: "+names.Hint(closest[:1], "")+"times are in s, ms, us or ns, sizes in bytes, kb, mb, gb, kib, mib or gib")
}

// failRow turns an error of the CSV reader into one of the file.
func (t *table) failRow(err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return &fields.FileError{File: t.file, Line: bad.Line, Field: "row", Reason: "cannot be read: " + bad.Err.Error()}
	}
	return &fields.FileError{File: t.file, Field: "row", Reason: "is missing: the table is empty"}
}

// layer reads a row; nil at the end.
func (t *table) layer() (*chain.Layer, error) {
	row, err := t.reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, t.failRow(err)
	}
	l := &chain.Layer{}
	if t.named >= 0 {
		l.Name = visible.Text(strings.TrimSpace(row[t.named]))
	}
	given := map[string]bool{}
	for i, c := range t.of {
		if c == nil || strings.TrimSpace(row[i]) == "" {
			continue
		}
		x, err := t.number(i, strings.TrimSpace(row[i]))
		if err != nil {
			return nil, err
		}
		given[c.name] = true
		c.put(l, x)
	}
	for _, name := range required {
		if !given[name] && (name == "output" || !isInput(l)) {
			return nil, t.fail(name, "", "is missing in the row of layer "+strconv.Quote(l.Name))
		}
	}
	if !given["saved"] {
		l.SavedBytes = l.OutputBytes
	}
	if !given["gradient"] {
		l.GradientBytes = l.OutputBytes
	}
	return l, nil
}

// number reads a cell of a column, in seconds or bytes.
func (t *table) number(column int, text string) (float64, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0) || math.IsInf(x, 0) {
		return 0, t.fail(t.titles[column], text, "is not a number from 0")
	}
	if x = t.scale[column](x); x > 1<<53 {
		return 0, t.fail(t.titles[column], text, "is too large")
	}
	return x, nil
}

// isInput reports whether a row is that of a_0.
func isInput(l *chain.Layer) bool { return strings.EqualFold(l.Name, "input") }
