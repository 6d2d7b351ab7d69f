package importer

import (
	"fmt"
	"slices"

	"plimsoll/kernels"
)

// chain is the steps of a model, in topological order, and what they begin with.
type chain struct {
	input *step
	steps []*step
}

// classes returns how many logits there are.
func (c *chain) classes() int { return last(c.steps[len(c.steps)-1].desc.Shape) }

// perSample reports whether a sample of tokens has one row of logits.
func (c *chain) perSample() bool {
	return c.input.desc.DType == kernels.Int32 && len(c.steps[len(c.steps)-1].desc.Shape) == 2
}

// fuse lets a BatchNorm carry the sum and the ReLU behind it, so that neither has a tensor of its own.
func (c *chain) fuse(out *step) {
	readers := map[*step]int{out: 1}
	for _, s := range c.steps {
		for _, in := range s.in {
			readers[in]++
		}
	}
	for _, s := range c.steps {
		if s.op != (kernels.ReLU{}) || readers[s.in[0]] != 1 {
			continue
		}
		x := s.in[0]
		if norm := plainNorm(x); norm != nil {
			norm.ReLU = true
			s.op, s.in, s.sources = *norm, x.in, x.sources
			continue
		}
		if _, sum := x.op.(kernels.Add); !sum {
			continue
		}
		for i, y := range x.in {
			if norm := plainNorm(y); norm != nil && readers[y] == 1 {
				norm.ReLU, norm.Residual = true, true
				s.op, s.in, s.sources = *norm, []*step{y.in[0], x.in[1-i]}, y.sources
				break
			}
		}
	}
}

// prune leaves out what the output does not need, and numbers the rest.
func (c *chain) prune(out *step) {
	need := map[*step]bool{out: true}
	for _, s := range slices.Backward(c.steps) {
		for _, in := range s.in {
			need[in] = need[in] || need[s]
		}
	}
	c.steps = slices.DeleteFunc(c.steps, func(s *step) bool { return !need[s] })
	for i, s := range c.steps {
		s.at = i + 1
	}
}

// section is a range of steps, first to last, that is a layer; in are the values that it gets, of steps before it or the input.
type section struct {
	first, last int
	in          []*step
}

// mostProducts is how many steps with products a layer may have before it is divided where several tensors are alive.
const mostProducts = 10

// sections divides the steps into layers. Behind a step that all paths pass, an articulation of the graph, its output is all that later
// steps read. A layer ends behind each of them unless what follows, up to the next one, has no products: a norm, a ReLU or a pool stays
// with what it follows. Where there is none for long, as in a U-Net, layers end where little is alive besides: see divide.
func (c *chain) sections() (all []section) {
	alive := c.alive()
	first := 1
	for p, s := range c.steps {
		if len(alive[p]) != 1 || alive[p][0] != s {
			continue
		}
		switch last := len(all) - 1; {
		case products(c.steps[first-1:p+1]) > 0 || last < 0 && p+1 == len(c.steps):
			all = append(all, section{first: first, last: p + 1})
		case last >= 0:
			all[last].last = p + 1
		default:
			continue // nothing has products yet
		}
		first = p + 2
	}
	var divided []section
	for _, s := range all {
		divided = append(divided, c.divide(s, alive)...)
	}
	for i := range divided {
		divided[i].in = []*step{c.input}
		if i > 0 {
			divided[i].in = alive[divided[i].first-2]
		}
	}
	return divided
}

// checkTies refuses a parameter of two steps of one layer: an executor adds up gradients of different layers.
func (c *chain) checkTies(shared string) error {
	owner, layer := map[string]int{}, map[*step]int{}
	for i, s := range c.sections() {
		for _, step := range c.steps[s.first-1 : s.last] {
			layer[step] = i
		}
	}
	for _, s := range c.steps {
		for _, from := range s.sources {
			if from.tied == 0 {
				owner[from.name] = layer[s]
			} else if at, is := owner[from.name]; !is || at == layer[s] {
				return fmt.Errorf("%s: %q is a parameter of another node of the same layer too, which is not supported%s", s.label, from.name, shared)
			}
		}
	}
	return nil
}

// alive returns, for each step, the values that steps behind it read, in the order of their making; of one behind which many are
// alive, none.
func (c *chain) alive() [][]*step {
	until := map[*step]int{c.steps[len(c.steps)-1]: len(c.steps) + 1}
	for _, s := range c.steps {
		for _, in := range s.in {
			until[in] = max(until[in], s.at)
		}
	}
	const many = 16 // what passes a layer is copied
	all, now := make([][]*step, len(c.steps)), []*step{c.input}
	for i, s := range c.steps {
		now = slices.DeleteFunc(append(now, s), func(v *step) bool { return until[v] <= s.at })
		if len(now) <= many {
			all[i] = slices.Clone(now)
		}
	}
	return all
}

// divide ends layers within a section of many products. A layer may end after a step at which several images are alive, if it has
// made at least as many bytes itself as are alive then. They are packed as one activation, and what a layer does not read passes
// it.
func (c *chain) divide(s section, alive [][]*step) []section {
	if products(c.steps[s.first-1:s.last]) <= mostProducts {
		return []section{s}
	}
	var all []section
	first, made := s.first, int64(0)
	for p := s.first; p < s.last; p++ {
		made += c.steps[p-1].desc.Storage()
		passes := c.packable(alive[p-1])
		next := c.steps[p] // a norm, a ReLU or a pool stays with what it follows
		if passes == 0 || passes > made || products(c.steps[first-1:p]) == 0 || len(alive[p]) == len(alive[p-1]) && products([]*step{next}) == 0 {
			continue
		}
		all = append(all, section{first: first, last: p})
		first, made = p+1, 0
	}
	if n := len(all); n > 0 && products(c.steps[first-1:s.last]) == 0 {
		all[n-1].last = s.last
		return all
	}
	return append(all, section{first: first, last: s.last})
}

// packable returns the bytes of values that can be packed: images, made by steps; 0: they cannot.
func (c *chain) packable(values []*step) (bytes int64) {
	for _, v := range values {
		if v == c.input || len(v.desc.Shape) != 4 {
			return 0
		}
		bytes += v.desc.Storage()
	}
	return bytes
}
