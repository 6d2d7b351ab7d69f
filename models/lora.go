package models

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"plimsoll/internal/names"
	"plimsoll/kernels"
)

// LoRA holds the settings of low-rank adapters of linear layers: y = W x + (alpha/r) B A x. A and B train, and all else is frozen.
// The zero value adds none. Names are PEFT's. Source: Hu et al. 2021, LoRA: Low-Rank Adaptation of Large Language Models, section 4.1.
type LoRA struct {
	Rank    int
	Alpha   float64
	Dropout float64 // of what A reads
	Targets string  // modules, with + between them: the last name, or the last names, of each; or AllLinear
}

// AllLinear stands for all linear layers but the last one.
const AllLinear = "all-linear"

// Names of an adapter's matrices behind that of its module, and of the factor that it multiplies by.
const (
	loraA     = ".lora_A.weight"
	loraB     = ".lora_B.weight"
	loraScale = ".lora_scale"
)

// ParseLoRA reads an adapter's settings: "r=16,alpha=32,targets=q_proj+v_proj". Alpha is r, and dropout 0, where they are not given.
func ParseLoRA(text string) (l LoRA, err error) {
	seen := map[string]bool{}
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		if seen[key] {
			return LoRA{}, fmt.Errorf("%s is given twice: %s", key, form)
		}
		seen[key] = true
		switch key {
		case "r":
			l.Rank, err = strconv.Atoi(value)
		case "alpha":
			l.Alpha, err = strconv.ParseFloat(value, 64)
		case "dropout":
			l.Dropout, err = strconv.ParseFloat(value, 64)
		case "targets":
			l.Targets = value
		default:
			return LoRA{}, fmt.Errorf("%q is none of r, alpha, targets and dropout: %s", key, form)
		}
		if err != nil {
			return LoRA{}, fmt.Errorf("%s is %q, want a number: %s", key, value, form)
		}
	}
	if !seen["alpha"] {
		l.Alpha = float64(l.Rank)
	}
	return l, l.Check()
}

// form is how the settings of adapters are written.
const form = "give it as in r=16,alpha=32,targets=q_proj+v_proj"

// Check refuses settings that no adapter has.
func (l LoRA) Check() error {
	switch {
	case l.Rank < 1 || l.Rank > kernels.MaxExtent:
		return fmt.Errorf("r is %d, want at least 1: %s", l.Rank, form)
	case !(l.Alpha > 0) || math.IsInf(l.Alpha, 1):
		return fmt.Errorf("alpha is %v, want a positive number: %s", l.Alpha, form)
	case !(float32(l.Alpha/float64(l.Rank)) > 0) || math.IsInf(float64(float32(l.Alpha/float64(l.Rank))), 1):
		return fmt.Errorf("alpha is %v and r %d, whose ratio is no positive number of float32: %s", l.Alpha, l.Rank, form)
	case !(l.Dropout >= 0 && l.Dropout < 1):
		return fmt.Errorf("dropout is %v, want at least 0 and less than 1: %s", l.Dropout, form)
	case l.Targets == "" || slices.Contains(strings.Split(l.Targets, "+"), ""):
		return fmt.Errorf("targets is %q, want modules with + between them, or %s: %s", l.Targets, AllLinear, form)
	}
	return nil
}

// IsAdapter reports whether a parameter is a matrix of an adapter.
func IsAdapter(name string) bool {
	return strings.HasSuffix(name, loraA) || strings.HasSuffix(name, loraB)
}

// adapters adds adapters to a model.
type adapters struct {
	LoRA
	head    string          // the module of the model's last matrix
	reached map[string]bool // targets that a linear layer has
	other   map[string]string
}

// adapt freezes all weights and adds adapters.
func (m *Model) adapt(l LoRA) error {
	if len(m.Branches) > 0 {
		return fmt.Errorf("%w: --lora: %s has branches, which share weights: adapters are for chains", ErrConfig, m.Name)
	}
	a := &adapters{LoRA: l, head: m.head(), reached: map[string]bool{}, other: map[string]string{}}
	m.eachOwn(func(p *Parameter) { p.Frozen, p.Trained = p.Frozen || p.Trained, false })
	if err := m.separate(func(parts []string) (bool, error) {
		return slices.ContainsFunc(parts, func(name string) bool { return a.target(moduleOf(name)) != "" }), nil
	}); err != nil {
		return err
	}
	if err := m.rewrite(a.extend); err != nil {
		return err
	}
	for target := range strings.SplitSeq(l.Targets, "+") {
		if op := a.other[target]; op != "" {
			return fmt.Errorf("%w: --lora: target %s of %s is an op of kind %s: adapters are for linear layers", ErrConfig, target, m.Name, op)
		}
		if !a.reached[target] {
			return fmt.Errorf("%w: --lora: no linear layer of %s is called %s: %slinear layers are %s",
				ErrConfig, m.Name, target, names.Hint(names.Closest(target, m.linears()), ""), strings.Join(m.linears(), ", "))
		}
	}
	return nil
}

// moduleOf returns the module of a parameter: "layers.0.q_proj" of "layers.0.q_proj.weight".
func moduleOf(name string) string { return name[:max(strings.LastIndex(name, "."), 0)] }

// head returns the module of the last matrix.
func (m *Model) head() string {
	for _, l := range slices.Backward(m.Layers) {
		for _, n := range slices.Backward(l.Nodes) {
			if _, linear := n.Op.(kernels.Linear); linear {
				return moduleOf(n.Params[0].fileNames()[0])
			}
		}
	}
	return ""
}

// linears returns the last names of the modules of linear layers.
func (m *Model) linears() (all []string) {
	for _, l := range m.Layers {
		for _, n := range l.Nodes {
			if _, linear := n.Op.(kernels.Linear); !linear || IsAdapter(n.Params[0].Name) {
				continue
			}
			for _, name := range n.Params[0].fileNames() {
				if short := module(name); !slices.Contains(all, short) {
					all = append(all, short)
				}
			}
		}
	}
	return all
}

// target returns which of the targets a module is; "": it is none.
func (a *adapters) target(module string) string {
	for target := range strings.SplitSeq(a.Targets, "+") {
		if target == AllLinear && module != a.head || module == target || strings.HasSuffix(module, "."+target) {
			return target
		}
	}
	return ""
}

// extend adds a node and, where it is a target, its adapter.
func (a *adapters) extend(r *rewriter, n Node) (Value, error) {
	base, err := r.add(n)
	if err != nil || len(n.Params) == 0 {
		return base, err
	}
	module := moduleOf(n.Params[0].fileNames()[0])
	target := a.target(module)
	op, linear := n.Op.(kernels.Linear)
	switch {
	case target == "":
		return base, nil
	case !linear && target == AllLinear:
		return base, nil
	case !linear:
		a.other[target] = n.Op.Kind()
		return base, nil
	}
	a.reached[target] = true
	delta, err := a.delta(r, n, op, module)
	if err != nil {
		return 0, err
	}
	return r.op(n.Name+".adapted", kernels.Add{}, nil, base, delta)
}

// delta adds (alpha/r) B A x.
func (a *adapters) delta(r *rewriter, n Node, op kernels.Linear, module string) (Value, error) {
	x := n.In[0]
	if a.Dropout > 0 {
		drop := Node{Name: n.Name + ".lora_dropout", Op: kernels.Dropout{P: float32(a.Dropout)}, In: []Value{x}}
		drop.Salt = salt(drop.Op, r.number, len(r.out.Nodes)+adapterSalt)
		v, err := r.add(drop)
		if err != nil {
			return 0, err
		}
		x = v
	}
	out := op.Out
	op.Out, op.Bias = a.Rank, false
	h, err := r.op(n.Name+".lora_A", op, func(q *Parameter) { q.Name, q.Start = module+loraA, UniformFanIn }, x)
	if err != nil {
		return 0, err
	}
	if factor := float32(a.Alpha / float64(a.Rank)); factor != 1 {
		if h, err = r.op(n.Name+".lora_scale", kernels.Scale{Axes: 1}, func(q *Parameter) {
			q.Name, q.Frozen, q.Constant, q.Trained = module+loraScale, true, true, false
			q.Fill = func(dst []float32) { fill(dst, func() float64 { return float64(factor) }) }
		}, h); err != nil {
			return 0, err
		}
	}
	op.Out = out
	return r.op(n.Name+".lora_B", op, func(q *Parameter) { q.Name, q.Start = module+loraB, Zeros }, h)
}

// adapterSalt keeps the random ops of adapters apart from those that the model has without.
const adapterSalt = 1 << 31
