package models

import (
	"fmt"
	glob "path"
	"slices"
	"strings"

	"plimsoll/internal/names"
)

// freeze freezes the weights that patterns name, and with "!" before a pattern lets them train again. A pattern is one of path.Match, in
// which * stands for any characters; it names a parameter of a file, or a module and so all parameters in it. Later patterns win. If files
// have a weight as several tensors, some of them can be frozen: then each is a weight of its own here.
func (m *Model) freeze(patterns string) error {
	if err := m.separate(func(names []string) (bool, error) {
		var all []bool
		for _, name := range names {
			frozen, err := frozenBy(patterns, name, false)
			if err != nil {
				return false, err
			}
			all = append(all, frozen)
		}
		return slices.Contains(all, true) && slices.Contains(all, false), nil
	}); err != nil {
		return err
	}
	if err := m.checkPatterns(patterns); err != nil {
		return err
	}
	m.eachOwn(func(p *Parameter) {
		if p.Statistic() {
			return
		}
		p.Frozen, _ = frozenBy(patterns, p.fileNames()[0], p.Frozen)
		p.Trained = !p.Frozen
	})
	m.place()
	return m.checkTrains("--freeze " + patterns)
}

// checkPatterns refuses a pattern that no weight has.
func (m *Model) checkPatterns(patterns string) error {
	for pattern := range strings.SplitSeq(patterns, ",") {
		found := false
		for _, p := range m.Params() {
			is, err := matches(strings.TrimPrefix(pattern, "!"), p.fileNames()[0])
			if err != nil {
				return err
			}
			found = found || is && !p.Statistic()
		}
		if !found {
			return fmt.Errorf("%w: --freeze %s: no weight or module of %s has that name: %snames are those of files, as in --freeze '%s'",
				ErrConfig, pattern, m.Name, names.Hint(names.Closest(pattern, m.modules()), ""), m.Params()[0].fileNames()[0])
		}
	}
	return nil
}

// checkTrains refuses a model of which nothing trains because all is frozen. by is what froze it.
func (m *Model) checkTrains(by string) error {
	if m.ParamCount() == 0 && slices.ContainsFunc(m.Params(), func(p Parameter) bool { return p.Frozen }) {
		return fmt.Errorf("%w: %s: every weight of %s is frozen: leave some to train", ErrConfig, by, m.Name)
	}
	return nil
}

// frozenBy returns whether a weight is frozen behind all patterns.
func frozenBy(patterns, name string, frozen bool) (bool, error) {
	for pattern := range strings.SplitSeq(patterns, ",") {
		pattern, thaw := strings.CutPrefix(pattern, "!")
		is, err := matches(pattern, name)
		if err != nil {
			return false, err
		}
		if is {
			frozen = !thaw
		}
	}
	return frozen, nil
}

// matches reports whether a pattern names a parameter or a module that it is in.
func matches(pattern, name string) (bool, error) {
	for end := range len(name) + 1 {
		if end < len(name) && name[end] != '.' {
			continue
		}
		is, err := glob.Match(pattern, name[:end])
		if err != nil {
			return false, fmt.Errorf("%w: --freeze %s: the pattern is malformed: * is any characters, ? one, [a-c] one of several", ErrConfig, pattern)
		}
		if is {
			return true, nil
		}
	}
	return false, nil
}

// modules returns the names of weights and of the modules that they are in.
func (m *Model) modules() (all []string) {
	for _, p := range m.Params() {
		for _, name := range p.fileNames() {
			for end := range len(name) + 1 {
				if (end == len(name) || name[end] == '.') && !slices.Contains(all, name[:end]) {
					all = append(all, name[:end])
				}
			}
		}
	}
	return all
}
