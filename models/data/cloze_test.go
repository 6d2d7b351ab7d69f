package data

import (
	"slices"
	"testing"
)

// TestCloze: labels are the tokens that stood there, 15 % of them, of which 80 % became the mask and 10 % another token. Samples of training
// differ from one time to the next, and held-out ones do not.
func TestCloze(t *testing.T) {
	t.Parallel()
	const length, mask = 64, 300
	set, err := Open("opticks", Options{Length: length, Seed: 3})
	must(t, err)
	text := set.(Sequences)
	cloze := NewCloze(text, 3, mask)
	if got, want := Tokenizer(cloze), Tokenizer(set); got != want || want == "" {
		t.Errorf("its tokens are of %q, those of the text of %q", got, want)
	}
	plain, labels := make([]float32, length), make([]int32, length)
	hidden, told := make([]float32, length), make([]int32, length)
	counted, masked, other, same := 0, 0, 0, 0
	for index := range int64(3000) {
		must(t, text.FillTokens(Train, index, plain, labels))
		must(t, cloze.FillTokens(Train, index, hidden, told))
		n := 0
		for i := range labels {
			if i > 0 && labels[i-1] != Ignored {
				counted++
			}
			is, was := tokenOf(hidden[i]), tokenOf(plain[i])
			switch {
			case told[i] == Ignored && is != was, told[i] != Ignored && (told[i] != was || i == 0 || labels[i-1] == Ignored):
				t.Fatalf("sample %d, token %d: %d became %d with the label %d", index, i, was, is, told[i])
			case told[i] == Ignored:
				continue
			case is == mask:
				masked++
			case is != was:
				other++
			default:
				same++
			}
			n++
		}
		if n == 0 {
			t.Fatalf("sample %d has no label", index)
		}
	}
	share := func(part, of int) float64 { return 100 * float64(part) / float64(of) }
	all := masked + other + same
	if a, b, c := share(all, counted), share(masked, all), share(other, all); a < 14.5 || a > 15.7 || b < 79 || b > 81 || c < 9 || c > 11 {
		t.Errorf("%.1f %% are masked, of these %.1f %% by the mask and %.1f %% by another token", a, b, c)
	}
	fill := func(split Split, index int64) []int32 {
		must(t, cloze.FillTokens(split, index, hidden, told))
		return slices.Clone(told)
	}
	if n := text.TestLen(); !slices.Equal(fill(Test, 1), fill(Test, 1+n)) || slices.Equal(fill(Test, 1), fill(Test, 2)) {
		t.Error("held-out samples are masked anew, or alike")
	}
	if n := text.TrainLen(); slices.Equal(fill(Train, 1), fill(Train, 1+n)) || !slices.Equal(fill(Train, 1), fill(Train, 1)) {
		t.Error("samples of training are masked alike in each epoch, or in other ways each time")
	}
}
