package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"plimsoll/executor"
	"plimsoll/executor/checkpoint/safetensors"
	"plimsoll/models"
)

// Files of an adapter's folder, as PEFT names them.
const (
	AdapterWeights  = "adapter_model.safetensors"
	AdapterSettings = "adapter_config.json"
)

// ErrAdapter: a folder's adapter_config.json asks for what is not supported; the message names the field.
var ErrAdapter = errors.New("this adapter is not supported")

// adapterSettings are the fields of adapter_config.json that are honoured.
type adapterSettings struct {
	PEFT     string          `json:"peft_type"`
	Task     *string         `json:"task_type"`
	Base     *string         `json:"base_model_name_or_path"`
	Rank     int             `json:"r"`
	Alpha    float64         `json:"lora_alpha"`
	Dropout  float64         `json:"lora_dropout"`
	Targets  json.RawMessage `json:"target_modules"`
	RootRank bool            `json:"use_rslora"`
	Bias     string          `json:"bias"`
	// Transposed says that the weights of the base are in, out; names alone depend on it here.
	Transposed bool `json:"fan_in_fan_out"`
	Inference  bool `json:"inference_mode"`
	// Start says how the adapter began, which a trained one no longer shows but where it changed the base.
	Start any `json:"init_lora_weights"`
}

// readFields are the fields above; told are those that say nothing about what an adapter computes.
var (
	readFields = []string{"peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "bias",
		"fan_in_fan_out", "inference_mode", "init_lora_weights"}
	toldFields = []string{"auto_mapping", "revision", "peft_version", "megatron_core", "qalora_group_size", "eva_config", "corda_config", "loftq_config",
		"ensure_weight_tying"}
)

// mostSettings bounds adapter_config.json.
const mostSettings = 1 << 20

// ReadAdapter returns the settings of the adapter in a folder that PEFT or a run wrote. Errors: ErrAdapter, ErrFormat, those of the operating
// system.
func ReadAdapter(folder string) (l models.LoRA, err error) {
	path := filepath.Join(folder, AdapterSettings)
	fail := func(kind error, format string, a ...any) (models.LoRA, error) {
		return models.LoRA{}, fmt.Errorf("%s: %w: %s", path, kind, fmt.Sprintf(format, a...))
	}
	text, err := readAtMost(path, mostSettings)
	if err != nil {
		return models.LoRA{}, err
	}
	s, fields := adapterSettings{Bias: "none", Start: true, Rank: 8, Alpha: 8}, map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return fail(ErrFormat, "it is no JSON object: %v", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fail(ErrFormat, "%v", err)
	}
	for name, value := range fields {
		if !slices.Contains(readFields, name) && !slices.Contains(toldFields, name) && says(value) {
			return fail(ErrAdapter, "field %q is %.80s, and is not known: only plain LoRA is", name, value)
		}
	}
	switch start, _ := s.Start.(string); {
	case s.PEFT != "LORA":
		return fail(ErrAdapter, "field \"peft_type\" is %q, want \"LORA\"", s.PEFT)
	case s.Bias != "none":
		return fail(ErrAdapter, "field \"bias\" is %q, want \"none\": biases of the base do not train", s.Bias)
	case s.Start != nil && s.Start != true && s.Start != false && start != "gaussian":
		return fail(ErrAdapter, "field \"init_lora_weights\" is %q, which changes the weights of the base: want true, false or \"gaussian\"", start)
	}
	targets, err := targetsOf(s.Targets)
	if err != nil {
		return fail(ErrAdapter, "field \"target_modules\" is %.80s: %v", s.Targets, err)
	}
	l = models.LoRA{Rank: s.Rank, Alpha: s.Alpha, Dropout: s.Dropout, Targets: strings.Join(targets, "+")}
	if s.RootRank {
		l.Alpha *= math.Sqrt(float64(l.Rank))
	}
	if err := l.Check(); err != nil {
		return fail(ErrFormat, "%v", err)
	}
	return l, nil
}

// readAtMost reads a file of at most so many bytes.
func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: %w: it has more than %d bytes", path, ErrFormat, most)
	}
	return text, err
}

// says reports whether a field has a value that asks for something.
func says(value json.RawMessage) bool {
	return !slices.Contains([]string{"null", "false", "[]", "{}", `""`, "0"}, string(bytes.TrimSpace(value)))
}

// targetsOf returns the modules of a list, or all-linear.
func targetsOf(text json.RawMessage) (targets []string, err error) {
	var one string
	if json.Unmarshal(text, &one) == nil {
		if one != models.AllLinear {
			return nil, fmt.Errorf("want a list of modules or %q: patterns are not known", models.AllLinear)
		}
		return []string{one}, nil
	}
	if err := json.Unmarshal(text, &targets); err != nil || len(targets) == 0 {
		return nil, errors.New("want a list of modules")
	}
	slices.Sort(targets)
	return slices.Compact(targets), nil
}

// EncodeAdapterSettings writes adapter_config.json. base is the model that the adapter is of; transposed says that files have its matrices
// in, out.
func EncodeAdapterSettings(w io.Writer, l models.LoRA, base string, transposed bool) error {
	targets, err := json.Marshal(strings.Split(l.Targets, "+"))
	if err != nil {
		return err
	}
	if l.Targets == models.AllLinear {
		targets = []byte(`"` + l.Targets + `"`)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(adapterSettings{
		PEFT: "LORA", Base: &base, Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, Targets: targets, Bias: "none",
		Transposed: transposed, Inference: true, Start: true,
	})
}

// EncodeAdapter writes adapter_model.safetensors.
func EncodeAdapter(w io.Writer, from Source) error {
	return safetensors.Write(w, ofPyTorch(nil), collect(adapter{Source: from}, inference, Batches{}))
}

// ImportAdapter loads the adapter in a folder. Before anything is loaded every name and shape is checked. Errors: those of Import.
func ImportAdapter(folder string, into Model) error {
	_, err := Import(filepath.Join(folder, AdapterWeights), adapter{into, into})
	return err
}

// HasAdapter reports whether a file of weights has an adapter beside the model's. Errors: those of Import.
func HasAdapter(path string) (has bool, err error) {
	files, err := openFiles(path)
	if err != nil {
		return false, err
	}
	for _, f := range files {
		has = has || slices.ContainsFunc(f.Tensors(), func(t safetensors.Info) bool { return models.IsAdapter(t.Name) })
	}
	return has, closeFiles(files)
}

// FitsAdapter reports what ImportAdapter would refuse.
func FitsAdapter(folder string, model []executor.Tensor) error {
	_, err := Fits(filepath.Join(folder, AdapterWeights), adapterTensors(model))
	return err
}

// adapter is the adapter of a model, under PEFT's names.
type adapter struct {
	Source
	into Model
}

// Tensors implements Source.
func (a adapter) Tensors() []executor.Tensor { return adapterTensors(a.Source.Tensors()) }

// adapterTensors returns the matrices of adapters, under PEFT's names.
func adapterTensors(model []executor.Tensor) (all []executor.Tensor) {
	for _, t := range model {
		if models.IsAdapter(t.Name) && inference(t.Role) {
			t.Name = adapterPrefix + t.Name
			all = append(all, t)
		}
	}
	return all
}

// Read implements Source.
func (a adapter) Read(t executor.Tensor, dst []float32) error {
	t.Name = strings.TrimPrefix(t.Name, adapterPrefix)
	return a.Source.Read(t, dst)
}

// Write implements Model.
func (a adapter) Write(t executor.Tensor, src []float32) error {
	t.Name = strings.TrimPrefix(t.Name, adapterPrefix)
	return a.into.Write(t, src)
}
