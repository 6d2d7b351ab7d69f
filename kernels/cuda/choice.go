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

	"plimsoll/internal/atomicfile"
)

// algorithm says who computes a convolution or a linear layer. All of them give the same bits every time.
type algorithm uint8

const (
	measured algorithm = iota // whichever was the fastest of those that compute rightly
	ours
	wgmma // ours, by instructions of capability 9.0 alone
	cublas
	cublasParts // in bfloat16, by parts that stay in the cache in float32 until they are added to a gradient
	cublasBias  // in bfloat16, the bias as weights of inputs that are 1
	cublasRows  // in bfloat16 and TF32, rows of one alignment together
	cudnn
	naive // the slow reference that judges the others: where none of them computes rightly
)

var algorithms = [...]string{
	ours: "ours", wgmma: "ours, wgmma", cublas: "cublas", cublasParts: "cublas, parts in float32", cublasBias: "cublas, bias as weights",
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

// key identifies the inputs of a choice.
func (c Choice) key() string {
	return fmt.Sprintf("%q %q %q %q %q %v", c.GPU, c.Library, c.Op, c.Pass, c.Shapes, c.Add)
}

// ChoicesVariable is the environment variable with the file that keeps choices, so that another process repeats them.
const ChoicesVariable = "PLIMSOLL_CUDA_CHOICES"

// WgmmaVariable is the environment variable that makes products by wgmma candidates where it is 1. No GPU has run them yet, and an
// instruction that a GPU refuses would lose the device.
const WgmmaVariable = "PLIMSOLL_CUDA_WGMMA"

// choices are the choices made so far. One at a time is made: two measurements would disturb each other.
type choices struct {
	mu   sync.Mutex
	file string // "": none
	read bool
	all  map[string]Choice
}

// remembered are the choices of all libraries of this process, so that profile, plan and run agree.
var remembered = &choices{file: os.Getenv(ChoicesVariable)}

// get returns the choice with the key of c. It is this process's choice, the file's if holds says that it holds here, or
// else the result of decide for c. An agreed choice that does not hold here is an error.
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

func (c Choice) algorithm() algorithm { return algorithm(slices.Index(algorithms[:], c.Algorithm)) }

// unable says why an agreed choice cannot be kept in this process.
func (c Choice) unable(why string) error {
	remedy := "use GPUs and libraries of one kind, or --debug vendor=refuse"
	if c.algorithm() == wgmma {
		remedy = "set " + WgmmaVariable + "=1, as where it was chosen"
	}
	return fmt.Errorf("%s: %s %s here for %s %s of %s, but all processes must choose alike: %s", c.GPU, c.Algorithm, why, c.Op, c.Pass, c.Shapes, remedy)
}
