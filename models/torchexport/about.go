package torchexport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"plimsoll/internal/units"
	"plimsoll/models/importer"
)

// compare refuses a model that does not train exactly the parameters of the program that have a gradient.
func (p *program) compare(s *importer.Summary) error {
	trained := map[string]bool{}
	for _, q := range s.Parameters() {
		from := p.weights.byName[q.Name]
		switch {
		case !q.Trained:
			continue
		case from == nil || !from.Param:
			return fmt.Errorf("%s: %q is a buffer, which PyTorch does not train, where a layer here has a parameter", q.Label, q.Name)
		}
		trained[from.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.written)) {
		if reader := s.Reader(name); reader != "" {
			return fmt.Errorf("%s: %q is changed in place by %s in each step, and is a constant here, which is not supported", reader, name, p.written[name])
		}
	}
	for _, from := range p.weights.all {
		if from.Param && from.Meta.Requires && !trained[from.Name] && s.Reader(from.Name) != "" {
			return fmt.Errorf("%s: parameter %q is read as a constant, which would not train: only parameters of layers are supported",
				s.Reader(from.Name), from.Name)
		}
	}
	return nil
}

// about describes the model: its layers, the parameters that train and the buffers, compared with those of the program.
func (p *program) about(s *importer.Summary) []string {
	trained, elements, frozen, fixed, kept := 0, int64(0), 0, 0, 0
	for _, q := range s.Parameters() {
		switch {
		case q.Trained:
			trained++
			elements += q.Elements
		case q.Frozen:
			frozen++
		case q.Fixed:
			fixed++
		default:
			kept++
		}
	}
	var unread []string
	buffers := 0
	for _, from := range p.weights.all {
		if !from.Param {
			buffers++
		} else if s.Reader(from.Name) == "" {
			unread = append(unread, from.Name)
		}
	}
	all := []string{fmt.Sprintf("%s; %s of %s numbers train, as in PyTorch; %d of %s move",
		s.Layers(), units.Count(trained, "parameter"), humanize.Comma(elements), kept, units.Count(buffers, "buffer"))}
	if frozen > 0 {
		all = append(all, fmt.Sprintf("%s frozen, as in PyTorch (requires_grad=False)", units.Count(frozen, "parameter")))
	}
	var off []string
	if n := p.dropoutsOff(); n > 0 {
		off = append(off, units.Count(n, "dropout"))
	}
	if fixed > 0 {
		off = append(off, units.Count(fixed/2, "batch norm")+" with fixed statistics")
	}
	if off != nil {
		all = append(all, fmt.Sprintf("in evaluation mode, as exported: %s; call model.train() before the export to train them", strings.Join(off, ", ")))
	}
	if len(unread) > 0 {
		all = append(all, fmt.Sprintf("the logits do not depend on %s, left out here: %s", units.Count(len(unread), "parameter"), units.List(unread, mostNamed)))
	}
	return all
}

// dropoutsOff counts dropouts that have a probability and are off.
func (p *program) dropoutsOff() (n int) {
	for _, node := range p.Module.Graph.Nodes {
		if c := node.arguments(); strings.TrimSuffix(node.op(), "_") == "dropout" && !c.bool("train", false) && c.float("p", 0.5) > 0 {
			n++
		}
	}
	return n
}

// mostNamed bounds how many parameters a sentence names.
const mostNamed = 4
