//go:build cuda && linux && amd64

package cuda

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"plimsoll/kernels"
	"slices"
)

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

// measured returns who computes a call: the fastest of those that can, and that compute it rightly. It is measured once, and
// proven once in each process.
func (l *Library) measured(call kernels.Call, c convolution) (algorithm, error) {
	call.Weight = kernels.Float32 // an algorithm is chosen, and proved, for weights of both types
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
