package devices

import (
	"fmt"
	"strconv"
	"strings"
)

// Item is one device of a spec.
type Item struct {
	Kind  string // a Backend's name
	Index int    // which of them; -1 when the spec names none
	Parts int    // virtual devices to split it into; 0 when it is not split
}

func (i Item) String() string {
	s := i.Kind
	if i.Index >= 0 {
		s += ":" + strconv.Itoa(i.Index)
	}
	if i.Parts > 0 {
		s += "*" + strconv.Itoa(i.Parts)
	}
	return s
}

// maxParts bounds a split, so that a slip of the finger is an error and not a million devices.
const maxParts = 1024

// Parse reads a spec. A device may be named once only: parts of one device are written with "*".
func Parse(spec string) ([]Item, error) {
	var items []Item
	for text := range strings.SplitSeq(spec, ",") {
		item, err := parseItem(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		for _, other := range items {
			if other.Kind == item.Kind && max(other.Index, 0) == max(item.Index, 0) {
				return nil, fmt.Errorf("%w %q: %s is named twice; %s*2 splits it in two", ErrSpec, spec, text, item.Kind)
			}
		}
		items = append(items, item)
	}
	return items, nil
}

func parseItem(text string) (Item, error) {
	item := Item{Index: -1}
	rest, parts, split := strings.Cut(text, "*")
	kind, index, indexed := strings.Cut(rest, ":")
	if item.Kind = kind; !isName(kind) {
		return item, fmt.Errorf(`%w %q: want a name, as in "cpu", "cpu*4" or "cuda:0"`, ErrSpec, text)
	}
	var err error
	if indexed {
		if item.Index, err = number(index, 0); err != nil {
			return item, fmt.Errorf("%w %q: index %q: %w", ErrSpec, text, index, err)
		}
	}
	if split {
		if item.Parts, err = number(parts, 1); err != nil {
			return item, fmt.Errorf("%w %q: parts %q: %w", ErrSpec, text, parts, err)
		}
	}
	return item, nil
}

func isName(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

func number(text string, least int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) < least || n > maxParts {
		return 0, fmt.Errorf("want a whole number from %d to %d", least, maxParts)
	}
	return int(n), nil
}
