//go:build cuda && linux && amd64

package cuda

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"plimsoll/internal/atomicfile"
	"plimsoll/kernels"
)

// algorithm says who computes a convolution or a linear layer. All of them give the same bits every time.
type algorithm uint8

const (
	measured algorithm = iota // whichever was the fastest of those that compute rightly
	ours
	cublas
	cublasParts // in bfloat16, by parts that stay in the cache in float32 until they are added to a gradient
	cublasBias  // in bfloat16, the bias as weights of inputs that are 1
	cublasRows  // in bfloat16, rows of one alignment together
	cudnn
	naive // the slow reference that judges the others: where none of them computes rightly
)

var algorithms = [...]string{
	ours: "ours", cublas: "cublas", cublasParts: "cublas, parts in float32", cublasBias: "cublas, bias as weights",
	cublasRows: "cublas, rows of one alignment", cudnn: "cudnn", naive: "naive",
}

func (a algorithm) String() string { return algorithms[a] }

// Choice is who computes a call, and why.
type Choice struct {
	GPU       string `json:"gpu"`
	Library   string `json:"library"` // that has chosen, with the versions of the vendors'
	Op        string `json:"op"`      // with its attributes
	Pass      string `json:"pass"`
	Shapes    string `json:"shapes"` // of the inputs
	Add       bool   `json:"add,omitempty"`
	Algorithm string `json:"algorithm"` // one of algorithms
	Workspace int64  `json:"workspace"` // bytes
	// Microseconds of each algorithm that ran, on random data; see clock.
	Microseconds map[string]float64 `json:"microseconds,omitempty"`
	Failed       []string           `json:"failed,omitempty"`  // algorithms that did not run, and why
	Refused      []string           `json:"refused,omitempty"` // algorithms that computed wrongly, and what
	proven       bool               // in this process
	agreed       bool               // by all processes of a run: this one cannot choose otherwise
}

// notable reports whether there was anything to choose.
func (c Choice) notable() bool { return len(c.Microseconds)+len(c.Failed)+len(c.Refused) > 0 }

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

// get returns the choice with the key of c: that of this process, that of the file where holds says that it holds here, or
// else what decide makes of c. An agreed choice that does not hold here is an error.
func (m *choices) get(c Choice, holds func(Choice) (bool, error), decide func(Choice) Choice) (Choice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return c, err
	}
	found, ok := m.all[c.key()]
	if ok && found.proven {
		return found, nil
	}
	if ok {
		ok, err := holds(found)
		if err != nil {
			return c, err
		}
		if found.proven = ok; ok {
			m.all[c.key()] = found
			return found, nil
		}
		if found.agreed {
			return c, found.unable("computes wrongly")
		}
	}
	c = decide(c)
	c.proven = true
	m.all[c.key()] = c
	if !c.notable() {
		return c, nil
	}
	return c, m.save()
}

// adopt takes the choices of another process as those of a library, over what a file says.
func (m *choices) adopt(l *Library, exported json.RawMessage) error {
	if len(exported) == 0 {
		return nil
	}
	list, err := parseChoices(exported)
	if err != nil {
		return fmt.Errorf("choices of algorithms, of rank 0 or of run.json: %w: use one version of the program everywhere", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return err
	}
	for _, c := range list {
		c.GPU = l.device.Info().Model
		if own, known := m.all[c.key()]; known && own.Algorithm == c.Algorithm {
			c = own
		}
		c.agreed = true
		m.all[c.key()] = c
	}
	return nil
}

// parseChoices reads choices of known algorithms.
func parseChoices(text []byte) (list []Choice, err error) {
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	for _, c := range list {
		if !slices.Contains(algorithms[ours:], c.Algorithm) {
			return nil, fmt.Errorf("algorithm %q is unknown", c.Algorithm)
		}
	}
	return list, nil
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
			list, err = parseChoices(text)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w: delete the file, or name another in %s", m.file, err, ChoicesVariable)
		}
		for _, c := range list {
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
	if err := atomicfile.WriteJSON(m.file, m.list(Choice.notable)); err != nil {
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

// Choices lists who computes which call on this GPU, as far as it was asked and there was a choice.
func (l *Library) Choices() []Choice {
	m := l.vendors.choices
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list(func(c Choice) bool { return c.notable() && c.GPU == l.device.Info().Model && c.Library == l.Name() })
}

// ExportChoices implements kernels.Chooser.
func (l *Library) ExportChoices() (json.RawMessage, error) {
	m := l.vendors.choices
	m.mu.Lock()
	defer m.mu.Unlock()
	return json.Marshal(m.list(func(c Choice) bool { return c.proven && c.GPU == l.device.Info().Model && c.Library == l.Name() }))
}

// Chosen implements kernels.Chooser.
func (l *Library) Chosen() any {
	if list := l.Choices(); len(list) > 0 {
		return list
	}
	return nil
}

// choose returns who computes a call: the fastest of those that can, and that compute it rightly. It is measured once, and
// proven once in each process.
func (l *Library) choose(call kernels.Call, c convolution) (algorithm, error) {
	candidates := l.candidates(call, c)
	asked := Choice{
		GPU: l.device.Info().Model, Library: l.Name(), Op: fmt.Sprintf("%s%+v", call.Op.Kind(), call.Op), Pass: call.Pass.String(),
		Shapes: fmt.Sprint(call.In), Add: call.Pass == kernels.BackwardInput && call.Adds(0) || call.Pass == kernels.BackwardParams && call.AddParams,
	}
	made, err := l.vendors.choices.get(asked, func(c Choice) (bool, error) { return l.holds(c, call, candidates) }, func(c Choice) Choice {
		return l.decide(c, call, candidates)
	})
	if err != nil {
		return ours, err
	}
	return made.algorithm(), nil
}

func (c Choice) algorithm() algorithm { return algorithm(slices.Index(algorithms[:], c.Algorithm)) }

// unable says why an agreed choice cannot be kept in this process.
func (c Choice) unable(why string) error {
	return fmt.Errorf("%s: %s %s here for %s %s of %s, and all processes of a run compute alike, as the first one has chosen: use GPUs and libraries of one kind, or --debug vendor=refuse",
		c.GPU, c.Algorithm, why, c.Op, c.Pass, c.Shapes)
}

// holds reports whether what another process has chosen computes rightly in this one.
func (l *Library) holds(made Choice, call kernels.Call, candidates []algorithm) (bool, error) {
	a := made.algorithm()
	if a == naive { // all others were wrong: they may have been mended
		return made.agreed, nil
	}
	if made.agreed && !slices.Contains(candidates, a) {
		return false, made.unable("cannot be used")
	}
	if !slices.Contains(candidates, a) {
		return false, fmt.Errorf("%s: it says that %s computes %s %s of %s, which it cannot here: delete the file", ChoicesVariable, a, made.Op, made.Pass, made.Shapes)
	}
	return !errors.Is(l.prove(call, a), ErrWrong), nil
}

// decide takes the fastest of the candidates that computes rightly. Ours is also taken when it could not be tried, for want of
// memory beside the arena, and nothing else could; the naive kernel when ours is wrong as well.
func (l *Library) decide(c Choice, call kernels.Call, candidates []algorithm) Choice {
	for _, a := range l.ranked(&c, call, candidates) {
		err := l.prove(call, a)
		switch {
		case errors.Is(err, ErrWrong):
			c.Refused = append(c.Refused, fmt.Sprintf("%s: %v", a, err))
			l.note(fmt.Sprintf("%s: %s is not used for %s %s of %s: %v", c.GPU, a, c.Op, c.Pass, c.Shapes, err))
			candidates = slices.DeleteFunc(slices.Clone(candidates), func(other algorithm) bool { return other == a })
		case err != nil:
			c.Failed = append(c.Failed, fmt.Sprintf("%s: it could not be tried: %v", a, err))
		default:
			return l.take(c, call, a)
		}
	}
	if slices.Contains(candidates, ours) {
		return l.take(c, call, ours)
	}
	return l.take(c, call, naive)
}

func (l *Library) take(c Choice, call kernels.Call, a algorithm) Choice {
	c.Algorithm = a.String()
	if b, err := l.buildAs(call, nil, a); err == nil {
		c.Workspace = b.used
	}
	return c
}

// ranked measures the candidates, where there are several, and returns those that ran, the fastest first.
func (l *Library) ranked(c *Choice, call kernels.Call, candidates []algorithm) (ran []algorithm) {
	if len(candidates) == 1 {
		return candidates
	}
	c.Microseconds = map[string]float64{}
	for _, a := range candidates {
		err := l.try(call, a, func(t *trial) error {
			us, err := l.vendors.time(a, t.launch)
			if err == nil {
				c.Microseconds[a.String()] = us
			}
			return err
		})
		if err != nil {
			c.Failed = append(c.Failed, fmt.Sprintf("%s: %v", a, err))
			continue
		}
		ran = append(ran, a)
	}
	slices.SortStableFunc(ran, func(a, b algorithm) int { return cmp.Compare(c.Microseconds[a.String()], c.Microseconds[b.String()]) })
	return ran
}
