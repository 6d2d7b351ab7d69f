package models

import (
	"slices"
	"strings"
	"testing"
)

// A model of one's own is one of those that New knows; a name is taken once.
func TestRegister(t *testing.T) {
	// Serial: it replaces registered.
	t.Cleanup(func() { registered = nil })
	if _, err := New("own", Config{Batch: 1, Image: 16, Classes: 2}); err == nil || slices.Contains(Names(), "own") {
		t.Fatal("own is known before it is registered")
	}
	Register(Known{Name: "own", Image: 16, Classes: 2, Build: tiny})
	m, err := New("own", Config{Batch: 1, Image: 16, Classes: 2})
	if err != nil || m.Name != "own" || m.Input.Shape[3] != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	if all := Zoo(); all[len(all)-1].Name != "own" || !slices.Contains(Names(), "own") {
		t.Error("own is not listed")
	}
	for _, k := range []Known{{Name: "own", Build: tiny}, {Name: "resnet18", Build: tiny}, {Name: "siamese", Build: tiny}, {Name: "new"}} {
		refuses(t, k.Name, func() { Register(k) })
	}
}

func refuses(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: ") || !strings.Contains(text, name) {
			t.Errorf("%s: %q", name, text)
		}
	}()
	f()
}
