package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

func encode(what map[string]string) []byte {
	text, err := json.Marshal(what)
	if err != nil {
		panic("BUG: strings have no JSON: " + err.Error())
	}
	return text
}

// compare returns a *DisagreementError where a process has something else than rank 0.
func compare(all [][]byte, rank int, hosts []string) error {
	var first, other map[string]string
	for _, x := range []struct {
		to   *map[string]string
		from []byte
	}{{&first, all[0]}, {&other, all[rank]}} {
		if err := json.Unmarshal(x.from, x.to); err != nil {
			return fmt.Errorf("%w: %w", ErrMessage, err)
		}
	}
	return differ(first, other, rank, hosts[0], hosts[rank])
}

// differ compares what rank 0 and another process have.
func differ(first, other map[string]string, rank int, host0, host string) error {
	names := slices.Sorted(maps.Keys(first))
	for name := range other {
		if _, have := first[name]; !have {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if first[name] != other[name] {
			return &DisagreementError{What: name, Ranks: [2]int{0, rank}, Hosts: [2]string{host0, host}, Values: [2]string{first[name], other[name]}}
		}
	}
	return nil
}
