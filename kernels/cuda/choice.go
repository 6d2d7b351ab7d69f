//go:build cuda && linux && amd64

package cuda

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"gorgonia.org/cu"

	"plimsoll/kernels"
	"plimsoll/runtime/cuda"
)

// algorithm says who computes a convolution or a linear layer. All of them give the same bits every time.
type algorithm uint8

const (
	measured algorithm = iota // whichever was the fastest
	ours
	cublas
	cudnn
)

var algorithms = [...]string{ours: "ours", cublas: "cublas", cudnn: "cudnn"}

func (a algorithm) String() string { return algorithms[a] }

// Choice is who computes a call, and why.
type Choice struct {
	GPU       string `json:"gpu"`
	Library   string `json:"library"` // that has chosen, with the versions of the vendors'
	Op        string `json:"op"`      // with its attributes
	Pass      string `json:"pass"`
	Shapes    string `json:"shapes"` // of the inputs
	Add       bool   `json:"add,omitempty"`
	Algorithm string `json:"algorithm"` // "ours", "cublas", "cudnn"
	Workspace int64  `json:"workspace"` // bytes
	// Microseconds of each algorithm that ran: the fastest of some runs on zeros.
	Microseconds map[string]float64 `json:"microseconds,omitempty"`
	Failed       []string           `json:"failed,omitempty"` // algorithms that did not run, and why
}

// key is what a choice depends on.
func (c Choice) key() string {
	return fmt.Sprintf("%q %q %q %q %q %v", c.GPU, c.Library, c.Op, c.Pass, c.Shapes, c.Add)
}

// ChoicesVariable is the environment variable with the file that keeps choices, so that another process repeats them.
const ChoicesVariable = "PLIMSOLL_CUDA_CHOICES"

// choices are those made so far. One at a time is made: two measurements would disturb each other.
type choices struct {
	mu   sync.Mutex
	file string // "": none
	read bool
	all  map[string]Choice
}

// remembered are the choices of all libraries of this process, so that profile, plan and run agree.
var remembered = &choices{file: os.Getenv(ChoicesVariable)}

// get returns the choice with the key of c, and lets decide make it when there is none.
func (m *choices) get(c Choice, decide func(Choice) Choice) (Choice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return c, err
	}
	if found, ok := m.all[c.key()]; ok {
		return found, nil
	}
	c = decide(c)
	m.all[c.key()] = c
	return c, m.save()
}

// open reads the file once. A file that is not there is written by the first choice.
func (m *choices) open() error {
	if m.read {
		return nil
	}
	m.all = map[string]Choice{}
	if m.file != "" {
		var list []Choice
		text, err := os.ReadFile(m.file)
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w: delete the file, or name another in %s", m.file, err, ChoicesVariable)
		}
		for _, c := range list {
			if !slices.Contains(algorithms[ours:], c.Algorithm) {
				return fmt.Errorf("%s: algorithm %q is unknown: delete the file, or name another in %s", m.file, c.Algorithm, ChoicesVariable)
			}
			m.all[c.key()] = c
		}
	}
	m.read = true
	return nil
}

// save writes the file anew, in one step.
func (m *choices) save() error {
	if m.file == "" {
		return nil
	}
	text, err := json.MarshalIndent(m.list(func(Choice) bool { return true }), "", "  ")
	if err == nil {
		err = os.WriteFile(m.file+".new", append(text, '\n'), 0o666)
	}
	if err == nil {
		err = os.Rename(m.file+".new", m.file)
	}
	if err != nil {
		return fmt.Errorf("choices of algorithms, %s: %w", ChoicesVariable, err)
	}
	return nil
}

func (m *choices) list(wanted func(Choice) bool) []Choice {
	list := []Choice{}
	for _, c := range m.all {
		if wanted(c) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Choice) int { return strings.Compare(a.key(), b.key()) })
	return list
}

// Choices lists who computes which call on this GPU, as far as it was asked.
func (l *Library) Choices() []Choice {
	m := l.vendors.choices
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(func(c Choice) bool { return c.GPU == l.device.Info().Model && c.Library == l.Name() })
}

// Chosen implements kernels.Chooser.
func (l *Library) Chosen() any {
	if list := l.Choices(); len(list) > 0 {
		return list
	}
	return nil
}

// choose returns who computes a call: the fastest of those that can. It is measured once.
func (l *Library) choose(call kernels.Call, c convolution) (algorithm, error) {
	if !l.vendors.any() {
		return ours, nil
	}
	candidates := l.candidates(call, c)
	if len(candidates) == 1 {
		return ours, nil
	}
	asked := Choice{
		GPU: l.device.Info().Model, Library: l.Name(), Op: fmt.Sprintf("%s%+v", call.Op.Kind(), call.Op), Pass: call.Pass.String(),
		Shapes: fmt.Sprint(call.In), Add: call.Pass == kernels.BackwardInput && call.Adds(0) || call.Pass == kernels.BackwardParams && call.AddParams,
	}
	made, err := l.vendors.choices.get(asked, func(c Choice) Choice { return l.decide(c, call, candidates) })
	if err != nil {
		return ours, err
	}
	chosen := algorithm(slices.Index(algorithms[:], made.Algorithm))
	if !slices.Contains(candidates, chosen) {
		return ours, fmt.Errorf("%s: it says that %s computes %s %s of %s, which it cannot here: delete the file", ChoicesVariable, chosen, made.Op, made.Pass, made.Shapes)
	}
	return chosen, nil
}

// decide measures the candidates. Ours is taken when nothing could be measured.
func (l *Library) decide(c Choice, call kernels.Call, candidates []algorithm) Choice {
	c.Algorithm, c.Microseconds = ours.String(), map[string]float64{}
	best := 0.0
	for _, a := range candidates {
		t, workspace, err := l.trial(call, a)
		if err != nil {
			c.Failed = append(c.Failed, fmt.Sprintf("%s: %v", a, err))
			continue
		}
		c.Microseconds[a.String()] = t
		if best == 0 || t < best {
			best, c.Algorithm, c.Workspace = t, a.String(), workspace
		}
	}
	return c
}

// trial runs a call on memory of its own, which holds zeros, and returns microseconds and bytes of workspace.
func (l *Library) trial(call kernels.Call, a algorithm) (microseconds float64, workspace int64, err error) {
	b, err := l.buildAs(call, nil, a)
	if err != nil {
		return 0, 0, err
	}
	err = l.device.Run(func() error {
		at, free, err := scratch(call.Uses(kernels.Operands{}, b.used))
		if err != nil {
			return err
		}
		bound, err := l.buildAs(call, at, a)
		if err == nil {
			var launch cuda.Launch
			if launch, err = l.launch(call.Op.Kind(), bound); err == nil {
				microseconds, err = l.vendors.time(a, launch)
			}
		}
		return errors.Join(err, free())
	})
	return microseconds, b.used, err
}

// scratch allocates operands. The context is current.
func scratch(uses []kernels.Use) (at addresses, free func() error, err error) {
	const apart = 256 // as cuMemAlloc aligns
	at, total := addresses{}, int64(0)
	for _, u := range uses {
		at[u.Operand] = deviceAddress(total)
		total += ceil(u.Bytes, apart) * apart
	}
	base, err := cu.MemAlloc(total)
	if err != nil {
		return nil, nil, fmt.Errorf("%d bytes to measure in: %w", total, err)
	}
	for o := range at {
		at[o] += deviceAddress(base)
	}
	free = func() error { return cu.MemFree(base) }
	if err := errors.Join(cu.MemsetD8(base, 0, total), cu.Synchronize()); err != nil {
		return nil, nil, errors.Join(err, free())
	}
	return at, free, nil
}

// Runs of a trial; the first, which loads code, does not count.
const trials = 6

// clock returns the microseconds of the fastest run of a launch. The context is current.
func clock(_ algorithm, launch cuda.Launch) (best float64, err error) {
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stream.Destroy()) }()
	var ends [2]cu.Event
	for i := range ends {
		if ends[i], err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, cu.DestroyEvent(&ends[i])) }()
	}
	for run := range trials {
		ms, err := lap(stream, ends, launch)
		if err != nil {
			return 0, err
		}
		if t := 1000 * ms; run == 1 || run > 1 && t < best {
			best = t
		}
	}
	return best, nil
}

// lap returns the milliseconds of one run.
func lap(stream cu.Stream, ends [2]cu.Event, launch cuda.Launch) (float64, error) {
	for _, f := range []func() error{
		func() error { return ends[0].Record(stream) },
		func() error { return launch.Issue(stream) },
		func() error { return ends[1].Record(stream) },
		stream.Synchronize,
	} {
		if err := f(); err != nil {
			return 0, errors.Join(err, stream.Synchronize())
		}
	}
	return ends[0].Elapsed(ends[1])
}
