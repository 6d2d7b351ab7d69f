package names

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestClosest(t *testing.T) {
	t.Parallel()
	known := []string{"store-all", "periodic", "revolve", "rotor", "rotor-exact", "rotor-floating", "pofo", "resnet50", "resnet56", "resnet101", "vgg16"}
	for name, want := range map[string][]string{
		"rotr": {"rotor"}, "Rotor": {"rotor"}, "rotro": {"rotor"}, "store_all": {"store-all"}, "storeall": {"store-all"}, "pfoo": {"pofo"},
		"resnet5O": {"resnet50", "resnet56"}, "resnet5": {"resnet50", "resnet56"}, "rotor-": {"rotor", "rotor-exact", "rotor-floating"}, "rotor-e": {"rotor-exact"}, "reslet101": {"resnet101"},
		"magic": nil, "": nil, "x": nil, "vg": nil, "lion": nil, "transformer": nil,
	} {
		if got := Closest(name, known); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	kind := errors.New("unknown optimizer")
	known := []string{"sgd", "adam", "adamw"}
	if err := In(kind, "adam", known); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"adm":  `unknown optimizer "adm": did you mean adam? known are sgd, adam, adamw`,
		"lion": `unknown optimizer "lion": known are sgd, adam, adamw`,
		"adax": `unknown optimizer "adax": did you mean adam? known are sgd, adam, adamw`,
	} {
		if err := In(kind, name, known); !errors.Is(err, kind) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := Hint([]string{"memory", "model"}, "--"); got != "did you mean --memory or --model? " {
		t.Error(got)
	}
}

// The number of slips is a distance but for its third side, and no number of random slips is counted as more than they are.
func TestSlips(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-d]{0,7}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		d := slips(a, b)
		if d != slips(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) || d < max(len(a), len(b))-min(len(a), len(b)) {
			t.Fatalf("%d between %q and %q, %d back", d, a, b, slips(b, a))
		}
		n := rapid.IntRange(0, 3).Draw(t, "slips")
		slipped := a
		for range n {
			slipped = slip(t, slipped)
		}
		if got := slips(a, slipped); got > n {
			t.Fatalf("%d slips from %q to %q, made by %d", got, a, slipped, n)
		}
	})
}

// slip adds, removes or changes a letter.
func slip(t *rapid.T, s string) string {
	at := rapid.IntRange(0, len(s)).Draw(t, "at")
	letter := rapid.SampledFrom([]string{"", "a", "b", "x"}).Draw(t, "letter")
	cut := min(at+rapid.IntRange(0, 1).Draw(t, "cut"), len(s))
	return strings.Join([]string{s[:at], letter, s[cut:]}, "")
}
