package torchexport

import (
	"errors"
	"fmt"
	"strings"

	"plimsoll/models/importer"
)

// graph returns the program as a graph.
func (p *program) graph() (*importer.Graph, error) {
	l := &lowering{
		program: p, names: map[string]string{}, stored: map[string]string{}, aliases: newAliases(), cuts: map[string]cutout{},
		to: &importer.Graph{Tensors: map[string]*importer.Tensor{}, Advice: advice},
	}
	for _, spec := range p.Module.Signature.Inputs {
		if err := l.input(spec); err != nil {
			return nil, err
		}
	}
	for _, n := range p.Module.Graph.Nodes {
		l.add(n)
	}
	for value, name := range l.stored {
		if by := l.aliases.written[value]; by != "" {
			p.written[name] = by
		}
	}
	if len(l.to.Nodes) > importer.MostNodes {
		return nil, fmt.Errorf("it has more than %d nodes", importer.MostNodes)
	}
	for _, spec := range p.Module.Signature.Outputs {
		if err := l.output(spec); err != nil {
			return nil, err
		}
	}
	return l.to, nil
}

// errUnknownOp is the refusal of an op that there is no rule for.
var errUnknownOp = errors.New("the op is not supported")

// errStochastic refuses the op that draws for stochastic depth, which many published models have.
var errStochastic = fmt.Errorf("%w: switch stochastic depth off, with drop_path_rate=0 in timm or p = 0 of torchvision's StochasticDepth", errUnknownOp)

// add lowers a node. One that cannot be becomes a node with its reason, which is refused where the output needs it.
func (l *lowering) add(n *node) {
	c := &call{lowering: l, arguments: n.arguments(), node: n}
	inputs, outputs := n.inputs(), n.outputs()
	for _, in := range inputs {
		if l.aliases.stale(in) {
			c.fail("it reads a tensor that %s has changed in place under another name, which is not supported: use what the change returns",
				l.aliases.changed[l.aliases.root[in]])
		}
	}
	made := c.lower()
	for _, in := range n.Inputs {
		if c.err == nil && !c.read[in.Name] {
			c.fail("argument %.100s is not supported", in.Name)
		}
	}
	if c.err == nil && len(made) < len(outputs) {
		c.err = errUnknownOp
	}
	l.aliases.follow(n, inputs)
	if c.remade != "" && c.err == nil {
		l.aliases.version[c.remade] = l.aliases.current[l.aliases.root[c.remade]]
	}
	if c.err == nil {
		for i, out := range outputs {
			l.names[out] = made[i]
		}
		return
	}
	refused := &importer.Node{Op: n.op(), Label: n.label(), Err: c.err}
	for _, in := range inputs {
		refused.In = append(refused.In, l.names[in])
	}
	for _, out := range outputs {
		refused.Out = append(refused.Out, l.named(out))
	}
	l.to.Nodes = append(l.to.Nodes, refused)
}

// lower returns the names of what a node makes.
func (c *call) lower() []string {
	rule := rules[c.node.Target]
	if rule == nil {
		rule = rules[c.node.op()]
	}
	switch {
	case rule != nil:
		return rule(c)
	case strings.HasPrefix(c.node.op(), "bernoulli"):
		c.err = errStochastic
	default:
		c.err = errUnknownOp
	}
	return nil
}

// advice is how to export what is refused.
var advice = importer.Advice{
	Outputs: ": export a model that takes one tensor, images or tokens, and returns logits and nothing else (aux_logits=False, return_dict=False)",
	Batch:   `, as with dynamic_shapes=({0: torch.export.Dim("n")},)`,
	Shared:  ": give each module parameters of its own",
}
