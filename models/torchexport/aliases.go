package torchexport

import "strings"

// An exported graph has in-place ops, such as relu_, and views that share memory. The importer has neither: a value is what its node makes,
// and stays so. Both mean the same unless a value is read under one name after it was changed under another. Such reads are found here, and
// refused.

// aliases follows which values share memory.
type aliases struct {
	root    map[string]string // by value: the first value that has its memory
	version map[string]int    // by value: that of the memory when the value was made
	current map[string]int    // by root
	changed map[string]string // by root: the label of the node that has changed it last
	written map[string]string // likewise, but for running statistics of norms
}

func newAliases() *aliases {
	return &aliases{map[string]string{}, map[string]int{}, map[string]int{}, map[string]string{}, map[string]string{}}
}

// add makes a value with memory of its own.
func (a *aliases) add(value string) { a.root[value] = value }

// stale reports whether a value's memory was changed after it was made.
func (a *aliases) stale(value string) bool { return a.version[value] != a.current[a.root[value]] }

// views are ops whose output shares memory with their first input, or may.
var views = map[string]bool{}

func init() {
	for _, op := range strings.Fields(`alias alias_copy chunk contiguous detach dropout expand expand_as flatten movedim narrow numpy_T permute ravel
		reshape reshape_as select slice split split_with_sizes squeeze detach_ swapaxes swapdims t tensor_split to transpose type_as unbind unflatten unsqueeze
		unsafe_chunk unsafe_split view view_as _unsafe_view diagonal unfold real feature_dropout alpha_dropout feature_alpha_dropout`) {
		views[op] = true
	}
}

// changes reports whether an op changes its first input: its name ends with one underscore, as relu_, or is an assignment, as __iand__.
func changes(op string) bool {
	return strings.HasSuffix(op, "_") && !strings.HasSuffix(op, "__") && op != "detach_" || strings.HasPrefix(op, "__i") && op != "__invert__"
}

// follow notes what a node's outputs share memory with. The inputs are the names of all tensors that it reads, the first one first.
func (a *aliases) follow(n *node, inputs []string) {
	op := n.op()
	if op == "batch_norm" {
		for _, in := range n.Inputs {
			if name, err := in.Arg.name(); err == nil && (in.Name == "running_mean" || in.Name == "running_var") {
				a.change(name, n)
			}
		}
	}
	if changes(op) && len(inputs) > 0 {
		a.change(inputs[0], n)
		a.written[a.root[inputs[0]]] = n.label()
	}
	for _, out := range n.outputs() {
		a.add(out)
		if len(inputs) > 0 && (changes(op) || views[op]) && !n.dropsOut() {
			root := a.root[inputs[0]]
			a.root[out], a.version[out] = root, a.version[inputs[0]]
			if changes(op) {
				a.version[out] = a.current[root]
			}
		}
	}
}

// change notes that a value's memory is changed.
func (a *aliases) change(value string, n *node) {
	root := a.root[value]
	a.current[root]++
	a.changed[root] = n.label()
}

// dropsOut reports whether a node is a dropout that makes a tensor of its own: one that is off returns its input.
func (n *node) dropsOut() bool {
	if n.op() != "dropout" {
		return false
	}
	c := n.arguments()
	return c.bool("train", false) && c.float("p", 0.5) > 0
}
