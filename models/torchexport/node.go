package torchexport

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// op returns a node's op without its overload, such as conv2d.
func (n *node) op() string {
	op, is := strings.CutPrefix(n.Target, "torch.ops.aten.")
	if !is {
		return n.Target
	}
	op, _, _ = strings.Cut(op, ".")
	return op
}

// label is how messages call a node: aten.lstm at model.py:41 (self.rnn).
func (n *node) label() string {
	label := shortened(n.Target)
	if strings.HasPrefix(n.Target, "torch.ops.aten.") {
		label = "aten." + shortened(n.op())
	}
	if file, line := userFrame(n.Meta["stack_trace"]); file != "" {
		label += fmt.Sprintf(" at %s:%d", file, line)
	}
	if module := n.module(); module != "" {
		label += " (self." + module + ")"
	}
	return label
}

// shortened bounds names that messages repeat.
func shortened(s string) string { return s[:min(len(s), 200)] }

// module is the path of the innermost module whose code a node is.
func (n *node) module() string {
	all := strings.Split(n.Meta["nn_module_stack"], ";")
	fields := strings.Split(all[len(all)-1], ",")
	if len(fields) != 3 { // key, path, type
		return ""
	}
	return shortened(fields[1])
}

// userFrame returns the innermost line of a stack that is no code of PyTorch's own.
func userFrame(stack string) (file string, line int) {
	for _, row := range slices.Backward(strings.Split(stack, "\n")) {
		rest, is := strings.CutPrefix(strings.TrimSpace(row), `File "`)
		if !is {
			continue
		}
		name, rest, _ := strings.Cut(rest, `", line `)
		number, _, _ := strings.Cut(rest, ",")
		at, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		if file == "" || !strings.Contains(name, "/site-packages/torch/") {
			file, line = shortened(path.Base(strings.ReplaceAll(name, `\`, "/"))), at
		}
		if !strings.Contains(name, "/site-packages/torch/") {
			return file, line
		}
	}
	return file, line
}

// inputs returns the names of all tensors that a node reads, in the order of its arguments.
func (n *node) inputs() (all []string) {
	for _, in := range n.Inputs {
		switch in.Arg.kind {
		case "as_tensor":
			if name, err := in.Arg.name(); err == nil {
				all = append(all, name)
			}
		case "as_tensors":
			all = append(all, in.Arg.list()...)
		case "as_optional_tensors":
			var several list[argument]
			if json.Unmarshal(in.Arg.raw, &several) == nil {
				for _, one := range several {
					if name, err := one.name(); err == nil {
						all = append(all, name)
					}
				}
			}
		}
	}
	return all
}

// outputs returns the names of a node's outputs.
func (n *node) outputs() (all []string) {
	for _, out := range n.Outputs {
		if out.kind == "as_tensors" {
			var several list[struct{ Name string }]
			if json.Unmarshal(out.raw, &several) == nil {
				for _, one := range several {
					all = append(all, one.Name)
				}
			}
			continue
		}
		name, _ := out.name() // "": none that anybody reads
		all = append(all, name)
	}
	return all
}

// name returns the name that an argument has as a tensor, or as a symbol.
func (a argument) name() (string, error) {
	v := struct {
		Name   string
		AsName string `json:"as_name"`
	}{}
	if err := json.Unmarshal(a.raw, &v); err != nil || v.Name+v.AsName == "" {
		return "", fmt.Errorf("want a name, have %s %.100s", a.kind, a.raw)
	}
	return v.Name + v.AsName, nil
}

// list returns the names of a list of tensors.
func (a argument) list() (all []string) {
	var several list[struct{ Name string }]
	if json.Unmarshal(a.raw, &several) == nil {
		for _, one := range several {
			all = append(all, one.Name)
		}
	}
	return all
}

// number returns a constant.
func (a argument) number() (v float64, err error) {
	switch a.kind {
	case "as_float", "as_int":
		if json.Unmarshal(a.raw, &v) == nil {
			return v, nil
		}
		var text string
		if json.Unmarshal(a.raw, &text) == nil {
			if v, is := map[string]float64{"Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[text]; is {
				return v, nil
			}
		}
	case "as_bool":
		var is bool
		if err = json.Unmarshal(a.raw, &is); is {
			v = 1
		}
		return v, err
	}
	return 0, fmt.Errorf("want a number, have %.40s %.100s", a.kind, a.raw)
}
