package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/kernels"
)

// updatesField is the metadata field that older files do not have.
const updatesField = "updates"

// Format is the metadata field "format" of a checkpoint. firstFormat is the format of older checkpoints, which are read too. The
// two differ only in the weights of a Linear that reads an image.
const (
	Format      = "plimsoll.checkpoint/v2"
	firstFormat = "plimsoll.checkpoint/v1"
)

// Meta is the state that the next step of a run depends on besides the tensors.
type Meta struct {
	Step int64 // steps done, which is the number of the next one
	// Updates are how often the weights of each layer were updated; nil in a file that does not say.
	Updates  []int64
	Batches  Batches // kept as tensors: Checkpoint.Batches reads them
	Seed     uint64
	Position int64 // samples drawn from the data
	Model    string
	Plan     string         // hash of the plan that the steps followed; a run may go on under another one
	Update   kernels.Update // the optimizer and its settings
	Schedule string         // the learning rate's schedule in the caller's words
	Library  string         // whose kernels computed, and
	Threads  int            // on how many threads: with others a run goes on, but perhaps not to the same bits
	// Extra are the caller's fields; so are those of a file that this package does not know.
	Extra map[string]string
}

// encode makes the metadata of a file.
func (m *Meta) encode() (map[string]string, error) {
	if m.Step < 0 || m.Position < 0 {
		return nil, fmt.Errorf("checkpoint: step is %d and position %d, want at least 0", m.Step, m.Position)
	}
	if m.Update == nil {
		return nil, errors.New("checkpoint: there is no optimizer")
	}
	settings, err := json.Marshal(m.Update)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: settings of %s: %w", m.Update.Kind(), err)
	}
	all := map[string]string{
		"format":             Format,
		"step":               strconv.FormatInt(m.Step, 10),
		"seed":               strconv.FormatUint(m.Seed, 10),
		"position":           strconv.FormatInt(m.Position, 10),
		"model":              m.Model,
		"plan":               m.Plan,
		"optimizer":          m.Update.Kind(),
		"optimizer_settings": string(settings),
		"schedule":           m.Schedule,
		"library":            m.Library,
		"threads":            strconv.Itoa(m.Threads),
	}
	if m.Updates != nil {
		text, err := json.Marshal(m.Updates)
		if err != nil {
			return nil, err
		}
		all[updatesField] = string(text)
	}
	for field, value := range m.Extra {
		if _, taken := all[field]; taken {
			return nil, fmt.Errorf("checkpoint: the extra field %q has the name of one of a checkpoint's own", field)
		}
		all[field] = value
	}
	return all, nil
}

// decodeMeta reads the metadata of a file. Errors: ErrFormat, with field and value.
func decodeMeta(all map[string]string) (Meta, error) {
	r := metaReader{left: maps.Clone(all)}
	if got := r.text("format"); r.err == nil && got != Format && got != firstFormat {
		r.fail("format", got, fmt.Sprintf("want %q", Format))
	}
	m := Meta{
		Step: r.count("step"), Seed: r.seed("seed"), Position: r.count("position"),
		Model: r.text("model"), Plan: r.text("plan"), Schedule: r.text("schedule"),
		Library: r.text("library"), Threads: int(r.count("threads")),
	}
	m.Update, m.Updates = r.update(), r.updates()
	if len(r.left) > 0 {
		m.Extra = r.left
	}
	return m, r.err
}

// MarshalJSON writes the metadata as a checkpoint has it: an object of strings.
func (m Meta) MarshalJSON() ([]byte, error) {
	all, err := m.encode()
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON writes. Errors: ErrFormat, with field and value.
func (m *Meta) UnmarshalJSON(text []byte) error {
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	read, err := decodeMeta(all)
	if err == nil {
		*m = read
	}
	return err
}

// metaReader takes metadata field by field; the first error stays.
type metaReader struct {
	left map[string]string
	err  error
}

func (r *metaReader) fail(field, value, reason string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: metadata field %q is %q: %s", ErrFormat, field, value, reason)
	}
}

func (r *metaReader) text(field string) string {
	value, ok := r.left[field]
	delete(r.left, field)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%w: metadata field %q is missing", ErrFormat, field)
	}
	return value
}

func (r *metaReader) count(field string) int64 {
	text := r.text(field)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		r.fail(field, text, "want a whole number from 0")
	}
	return n
}

func (r *metaReader) seed(field string) uint64 {
	text := r.text(field)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		r.fail(field, text, "want a whole number from 0 to 2^64-1")
	}
	return n
}

// updates reads the counts of updates, if there are any.
func (r *metaReader) updates() (all []int64) {
	if _, there := r.left[updatesField]; !there {
		return nil
	}
	text := r.text(updatesField)
	if err := json.Unmarshal([]byte(text), &all); err != nil || all == nil || slices.ContainsFunc(all, func(n int64) bool { return n < 0 }) {
		r.fail(updatesField, text, "want a list of whole numbers from 0, one for each layer")
	}
	return all
}

func (r *metaReader) update() kernels.Update {
	kind, text := r.text("optimizer"), r.text("optimizer_settings")
	u, err := decodeUpdate(kind, text)
	switch {
	case errors.Is(err, ErrFormat):
		r.fail("optimizer", kind, "known are sgd, adam, adamw, muon")
	case err != nil:
		r.fail("optimizer_settings", text, err.Error())
	}
	return u
}

func decodeUpdate(kind, text string) (kernels.Update, error) {
	switch kind {
	case kernels.SGD{}.Kind():
		return settings[kernels.SGD](text)
	case kernels.Adam{}.Kind():
		return settings[kernels.Adam](text)
	case kernels.AdamW{}.Kind():
		return settings[kernels.AdamW](text)
	case kernels.Muon{}.Kind():
		return settings[kernels.Muon](text)
	}
	return nil, ErrFormat
}

// settings reads an optimizer's settings. Unknown ones are refused: they would change what the next step does.
func settings[U kernels.Update](text string) (kernels.Update, error) {
	if _, err := fields.Parse([]byte(text)); err != nil { // not an object, twice the same field, something after it
		return nil, err
	}
	var u U
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&u)
	return u, err
}

// Difference is a field in which two runs differ.
type Difference struct {
	Field         string
	Saved, Wanted string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s was %q and is %q here", d.Field, d.Saved, d.Wanted)
}

// Differences lists what makes the run want another one than the one that was saved, in alphabetical order of the fields.
// Step, updates, position and plan may differ, as may fields that want does not have.
func (m *Meta) Differences(want *Meta) ([]Difference, error) {
	saved, err := m.encode()
	if err != nil {
		return nil, err
	}
	wanted, err := want.encode()
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"step", updatesField, "position", "plan"} {
		delete(wanted, field)
	}
	var list []Difference
	for _, field := range slices.Sorted(maps.Keys(wanted)) {
		if saved[field] != wanted[field] {
			list = append(list, Difference{field, saved[field], wanted[field]})
		}
	}
	return list, nil
}
