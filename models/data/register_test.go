package data

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A data set of one's own is one of those that Open knows; a name is taken once.
func TestRegister(t *testing.T) {
	// Serial: it replaces registered.
	t.Cleanup(func() { registered = nil })
	o := Options{Image: 16, Seed: 3}
	_, err := Open("own", o)
	wrong(t, "own", err, ErrUnknown)
	var got Options
	Register(Info{Name: "own", MinImage: 12, Open: func(path string, o Options) (Dataset, error) {
		got = o
		return openGlyphs(path, o)
	}})
	if set := open(t, "own", o); set.Classes() == 0 || got.Channels != 3 || got.Seed != 3 || !slices.Contains(Names(), "own") {
		t.Errorf("opened with %+v", got)
	}
	if _, err := Open("own", Options{Image: 11}); !errors.Is(err, ErrOption) {
		t.Errorf("too small images: %v", err)
	}
	for _, info := range []Info{{Name: "own", Open: openGlyphs}, {Name: "digits", Open: openGlyphs}, {Name: "own:PATH", Open: openGlyphs}, {Name: "new"}} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: ") || !strings.Contains(text, info.Name) {
					t.Errorf("%s: %q", info.Name, text)
				}
			}()
			Register(info)
		}()
	}
}
