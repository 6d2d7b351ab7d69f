package estimate

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/fields"
	"plimsoll/internal/names"
	"plimsoll/kernels"
)

// described are the device files in the program.
//
//go:embed devices/*.json
var described embed.FS

// ErrUnknown is returned for a name that is neither a device in the program nor a file.
var ErrUnknown = errors.New("unknown device")

// Names returns the devices in the program.
func Names() (all []string) {
	files, _ := fs.Glob(described, "devices/*.json") // the pattern is good
	for _, file := range files {
		all = append(all, strings.TrimSuffix(strings.TrimPrefix(file, "devices/"), ".json"))
	}
	return all
}

// Open returns the device of a name, or of a file: a name with a dot or a slash. Errors: ErrUnknown; those of a file name it, the field and
// its value.
func Open(name string) (*Device, error) {
	if strings.ContainsAny(name, "./\\") {
		return fields.ReadFile[Device](name)
	}
	text, err := described.ReadFile("devices/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("%w; a file has a dot in its name, as h100.json", names.Unknown(ErrUnknown, name, Names()))
	}
	d := new(Device)
	if err := d.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("BUG: device %s: %w", name, err)
	}
	return d, nil
}

// MarshalJSON writes the device as a file has it.
func (d Device) MarshalJSON() ([]byte, error) {
	return fields.List{
		{Name: "format", Value: Format}, {Name: "name", Value: d.Name},
		{Name: "flop_per_s", Value: d.Rates},
		{Name: "memory_bytes", Value: d.Memory}, {Name: "memory_bandwidth_bytes_per_s", Value: d.Bandwidth},
		{Name: "to_device_bytes_per_s", Value: d.ToDevice}, {Name: "to_host_bytes_per_s", Value: d.ToHost}, {Name: "duplex", Value: d.Duplex},
		{Name: "host_memory_bytes", Value: d.HostBytes}, {Name: "host_memory_bandwidth_bytes_per_s", Value: d.HostRate},
		{Name: "launch_s", Value: d.Launch}, {Name: "workspace_bytes", Value: d.Workspace},
		{Name: "efficiencies", Value: d.Rows}, {Name: "sources", Value: d.Sources},
	}.MarshalJSON()
}

// UnmarshalJSON reads and checks a device.
func (d *Device) UnmarshalJSON(data []byte) error {
	o, err := fields.Parse(data)
	if err != nil {
		return err
	}
	r := reader{o}
	o.Format(Format)
	o.Require("name", "duplex")
	read := Device{
		Name: o.String("name", ""), Rates: r.rates(),
		Memory: r.size("memory_bytes"), Bandwidth: r.rate("memory_bandwidth_bytes_per_s"),
		ToDevice: r.rate("to_device_bytes_per_s"), ToHost: r.rate("to_host_bytes_per_s"), Duplex: o.Bool("duplex", false),
		HostBytes: r.size("host_memory_bytes"), HostRate: r.rate("host_memory_bandwidth_bytes_per_s"),
		Launch: r.seconds("launch_s"), Workspace: o.Size("workspace_bytes", 0),
	}
	if read.Name == "" {
		r.Refuse("name", `""`, "is empty")
	}
	if read.Rows, err = r.efficiencies(); err != nil {
		return err
	}
	read.Sources = r.sources()
	if o.Err() == nil {
		*d = read
	}
	return o.Err()
}

// efficiencies takes the rows, or the name of a device in the program that has them.
func (r reader) efficiencies() (rows []Efficiency, err error) {
	r.Require("efficiencies")
	raw := r.Raw("efficiencies")
	if name := ""; json.Unmarshal(raw, &name) == nil && name != "" {
		return r.efficienciesOf(name), nil
	}
	var list []json.RawMessage
	if raw != nil && json.Unmarshal(raw, &list) != nil {
		r.Refuse("efficiencies", string(raw), "is neither an array nor the name of a device")
	}
	for i, raw := range list {
		e, err := efficiency(raw)
		if err != nil {
			return nil, fmt.Errorf("row %d of field \"efficiencies\": %w", i+1, err)
		}
		rows = append(rows, e)
	}
	if len(rows) == 0 || rows[len(rows)-1].named() {
		r.Refuse("efficiencies", "", "does not end with a row without op, pass and dtype, which counts for everything else: add one")
	}
	return rows, nil
}

// efficienciesOf returns the rows of a device in the program.
func (r reader) efficienciesOf(name string) []Efficiency {
	if !slices.Contains(Names(), name) {
		r.Refuse("efficiencies", strconv.Quote(name), "is not a device in the program: give one of "+strings.Join(Names(), ", ")+", or rows")
		return nil
	}
	d, err := Open(name)
	if err != nil {
		r.Refuse("efficiencies", strconv.Quote(name), "cannot be used: "+err.Error())
		return nil
	}
	return d.Rows
}

// named reports whether a row is about some ops alone.
func (e *Efficiency) named() bool { return e.Op != "" || e.Pass != "" || e.DType != "" }

// MarshalJSON writes a row as a file has it.
func (e Efficiency) MarshalJSON() ([]byte, error) {
	out := fields.Unless(fields.List{}, "", "op", e.Op)
	out = fields.Unless(out, "", "pass", e.Pass)
	out = fields.Unless(out, "", "dtype", e.DType)
	out = append(out, fields.Field{Name: "arithmetic", Value: e.Arithmetic}, fields.Field{Name: "memory", Value: e.Memory})
	return fields.Unless(out, 0, "launch_s", e.Launch).MarshalJSON()
}

// ops returns the names that an efficiency can have: ops, kinds of optimizers, copies and updates on the host.
func ops() []string {
	return append(kernels.Kinds(), "sgd", "adam", "adamw", "muon", copies, hostUpdate)
}

// passes are the names of the passes of a call.
var passes = []string{kernels.Forward.String(), kernels.Backward.String(), kernels.BackwardInput.String(), kernels.BackwardParams.String()}

// types are the names of the element types that devices compute in.
var types = []string{kernels.Float32.String(), kernels.TF32.String(), kernels.BFloat16.String()}

// efficiency reads a row.
func efficiency(raw json.RawMessage) (e Efficiency, err error) {
	o, err := fields.Parse(raw)
	if err != nil {
		return e, err
	}
	r := reader{o}
	e = Efficiency{Op: o.String("op", ""), Pass: r.known("pass", passes), DType: r.known("dtype", types)}
	if e.Op != "" && !slices.Contains(ops(), e.Op) {
		r.Refuse("op", strconv.Quote(e.Op), "is not the kind of an op or an update: give one of "+strings.Join(ops(), ", "))
	}
	e.Arithmetic, e.Memory = r.share("arithmetic"), r.share("memory")
	if o.Has("launch_s") {
		e.Launch = r.seconds("launch_s")
	}
	for name := range o.Rest() {
		r.Refuse(name, "there", "is not a field of an efficiency: give op, pass, dtype, arithmetic, memory or launch_s")
	}
	return e, o.Err()
}

// reader takes fields that a device must have.
type reader struct{ *fields.Object }

// rate takes a number above 0.
func (r reader) rate(name string) float64 {
	r.Require(name)
	x := r.Float(name, 1)
	if !(x > 0 && x <= math.MaxFloat64) {
		r.Refuse(name, format(x), "is not above 0")
	}
	return x
}

// seconds takes a time.
func (r reader) seconds(name string) float64 {
	r.Require(name)
	return r.NotNegative(name, 0)
}

// share takes a number above 0, at most 1.
func (r reader) share(name string) float64 {
	x := r.rate(name)
	if x > 1 {
		r.Refuse(name, format(x), "is above 1: it is a share of the device's rate")
	}
	return x
}

// size takes a number of bytes above 0.
func (r reader) size(name string) int64 {
	r.Require(name)
	n := r.Size(name, 1)
	if n == 0 {
		r.Refuse(name, "0", "is not above 0")
	}
	return n
}

// known takes a name out of a list; "" where it is missing.
func (r reader) known(name string, list []string) string {
	text := r.String(name, "")
	if text != "" && !slices.Contains(list, text) {
		r.Refuse(name, strconv.Quote(text), "is not one of "+strings.Join(list, ", "))
	}
	return text
}

// rates takes the rates by element type.
func (r reader) rates() map[string]float64 {
	r.Require("flop_per_s")
	inner := reader{r.Object.Object("flop_per_s")}
	all := map[string]float64{}
	for _, name := range types {
		if inner.Has(name) {
			all[name] = inner.rate(name)
		}
	}
	for name := range inner.Rest() {
		inner.Refuse(name, "there", "is not an element type: give "+strings.Join(types, ", "))
	}
	switch err := inner.Err(); {
	case err != nil:
		r.Refuse("flop_per_s", "", "cannot be used: "+err.Error())
	case len(all) == 0:
		r.Refuse("flop_per_s", "{}", "has no element type: give "+strings.Join(types, ", "))
	}
	return all
}

// sources takes the texts about figures.
func (r reader) sources() map[string]string {
	inner := r.Object.Object("sources")
	all := map[string]string{}
	for name := range inner.Rest() {
		all[name] = inner.String(name, "")
	}
	if err := inner.Err(); err != nil {
		r.Refuse("sources", "", "cannot be used: "+err.Error())
	}
	return all
}

func format(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
