package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/models/tokenizer"
)

// byteFolder is a tokenizer of bytes and an end of a document, with a chat template.
func byteFolder(t testing.TB, template string) string {
	t.Helper()
	numbers := map[string]int{"<|endoftext|>": 256}
	next := 256
	for b := range 256 {
		letter := rune(b)
		if b < '!' || b > '~' && b < 0xa1 || b == 0xad {
			letter = rune(next)
			next++
		}
		numbers[string(letter)] = b
	}
	vocabulary, err := json.Marshal(numbers)
	must(t, err)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "vocab.json"), vocabulary)
	write(t, filepath.Join(dir, "merges.txt"), nil)
	write(t, filepath.Join(dir, chatFile), []byte(template))
	return dir
}

const plainChat = `{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// shown is a sample with its learned tokens in brackets, and a dot for each token behind its end.
func shown(t *testing.T, set Dataset, split Split, index int64) string {
	t.Helper()
	tokens, labels := make([]float32, set.Shape()[1]), make([]int32, set.Shape()[1])
	must(t, set.(Sequences).FillTokens(split, index, tokens, labels))
	var b strings.Builder
	for i, label := range labels {
		token := tokenOf(tokens[i])
		if i == 0 || labels[i-1] == Ignored {
			b.WriteString(letter(token))
		}
		if label != Ignored {
			fmt.Fprintf(&b, "[%s]", letter(label))
			if i+1 < len(labels) && tokenOf(tokens[i+1]) != label && label != '\n' && label != 256 {
				t.Errorf("label %q is before token %q", letter(label), letter(tokenOf(tokens[i+1])))
			}
		}
	}
	return strings.ReplaceAll(b.String(), "][", "")
}

func tokenOf(value float32) int32 { return int32(math.Float32bits(value)) }

func letter(token int32) string {
	switch token {
	case 256, '\n':
		return "."
	}
	return string(token)
}

// TestRecords: labels of prompts and of messages that are no answers are ignored, and behind a record's end nothing counts. Records of text
// are one text.
func TestRecords(t *testing.T) {
	t.Parallel()
	folder := byteFolder(t, plainChat)
	for _, c := range []struct {
		text, tokenizer string
		length          int
		want            []string // training samples, then held out ones
	}{
		{`{"prompt":"2+2=","completion":"4"}` + "\n\n" + `{"completion":"no","prompt":"","why":7}` + "\n" + `{"prompt":"x","completion":"yz"}`, "", 7,
			[]string{"2+2=[4.]..", "n[o.]", "x[yz.]...."}},
		{`{"prompt":"2","completion":"4"}` + "\n" + `{"prompt":"3","completion":"9","text":null}`, folder, 4, []string{"2[4.]...", "3[9.]..."}},
		{`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}` + "\n" +
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"q"},{"role":"user","content":"c"}]}`, folder, 46,
			[]string{"<user>a;<assistant>[b;]<user>c;<assistant>[d;].....", "<user>a;<assistant>[q;]"}},
	} {
		file := write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(c.text))
		set, err := Open("jsonl:"+file, Options{Length: c.length, Tokenizer: c.tokenizer})
		must(t, err)
		var got []string
		for split, n := range []int64{set.TrainLen(), set.TestLen()} {
			for i := range n {
				got = append(got, shown(t, set, Split(split), i))
			}
		}
		for i := range got {
			got[i], c.want[i] = strings.TrimRight(got[i], "."), strings.TrimRight(c.want[i], ".")
		}
		if strings.Join(got, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s:\n got %q\nwant %q", c.text, got, c.want)
		}
	}
}

// TestTextOfRecords: records of text have the samples of the text file in which a line feed ends each of them.
func TestTextOfRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines, text bytes.Buffer
	for i := range 40 {
		one := fmt.Sprintf("record %d of é", i*i)
		must(t, json.NewEncoder(&lines).Encode(map[string]any{"text": one, "id": i}))
		text.WriteString(one + "\n")
	}
	o := Options{Length: 16, Seed: 5}
	sameSamples(t, "jsonl:"+write(t, filepath.Join(dir, "a.jsonl"), lines.Bytes()), "text:"+write(t, filepath.Join(dir, "a.txt"), text.Bytes()), o)
}

// TestTextsWithLabels: a text is read whole, and its class is its one label. Classes are one more than the largest.
func TestTextsWithLabels(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(`{"text":"good","label":2}`+"\n"+`{"label":0,"text":"bad"}`+"\n"+`{"label":1,"text":"a"}`))
	set, err := Open("jsonl:"+file, Options{Length: 5})
	must(t, err)
	if set.Classes() != 3 || Labels(set) != 1 || set.TrainLen() != 2 || set.TestLen() != 1 {
		t.Errorf("%d classes, %d labels, %d and %d samples", set.Classes(), Labels(set), set.TrainLen(), set.TestLen())
	}
	b, err := NewBatcher(set, Train, 4, 1)
	must(t, err)
	tokens, labels := make([]float32, 20), make([]int32, 4)
	_, err = b.Fill(0, tokens, labels)
	must(t, err)
	for i, label := range labels {
		text := ""
		for _, token := range tokens[i*5 : i*5+5] {
			text += letter(tokenOf(token))
		}
		if want := map[int32]string{2: "good.", 0: "bad.."}[label]; text != want {
			t.Errorf("class %d has the text %q, want %q", label, text, want)
		}
	}
	for words, line := range map[string]string{"give --length 6": `{"text":"longer","label":1}`, "its text is empty": `{"text":"","label":1}`} {
		if _, err := Open("jsonl:"+write(t, file, []byte(line)), Options{Length: 5}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", line, err, words)
		}
	}
}

// TestTextsWithLabelsInAFrame: special tokens that a tokenizer.json puts around a text are there, and count.
func TestTextsWithLabelsInAFrame(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	words, err := os.ReadFile(filepath.Join("..", "tokenizer", "testdata", "bert", "tokenizer.json"))
	must(t, err)
	write(t, filepath.Join(folder, "tokenizer.json"), words)
	write(t, filepath.Join(folder, "tokenizer_config.json"), []byte(`{"pad_token": "[PAD]"}`))
	file := write(t, filepath.Join(folder, "a.jsonl"), bytes.Repeat([]byte(`{"text":"the dog","label":1}`+"\n"), 10))
	set, err := Open("jsonl:"+file, Options{Length: 6, Tokenizer: folder})
	must(t, err)
	tokens, labels := make([]float32, 6), make([]int32, 6)
	must(t, set.(Sequences).FillTokens(Train, 0, tokens, labels))
	by, err := tokenizer.Open(folder)
	must(t, err)
	text := []int32{}
	for _, token := range tokens {
		text = append(text, tokenOf(token))
	}
	if have, err := by.Decode(nil, text); err != nil || string(have) != "[CLS] the dog[SEP][PAD][PAD]" {
		t.Errorf("%q, %v", have, err)
	}
	if _, err := Open("jsonl:"+file, Options{Length: 3, Tokenizer: folder}); err == nil || !strings.Contains(err.Error(), "it has 4 tokens, and a sample has 3") {
		t.Error(err)
	}
}

// TestParquetIsJSON: files that pyarrow wrote in three ways have the samples of the lines of JSON that they were made of.
func TestParquetIsJSON(t *testing.T) {
	t.Parallel()
	folder := byteFolder(t, plainChat)
	for name, o := range map[string]Options{"text": {Length: 12}, "prompts": {Length: 40}, "messages": {Length: 90, Tokenizer: folder}} {
		for _, way := range []string{"plain", "older", "small"} {
			sameSamples(t, "jsonl:testdata/parquet/"+name+".jsonl", "parquet:testdata/parquet/"+name+"-"+way+".parquet", o)
		}
	}
}

// sameSamples checks that two data sets have the same samples.
func sameSamples(t *testing.T, a, b string, o Options) {
	t.Helper()
	one, err := Open(a, o)
	must(t, err)
	other, err := Open(b, o)
	must(t, err)
	if one.TrainLen() != other.TrainLen() || one.TestLen() != other.TestLen() || one.TrainLen() < 1 {
		t.Fatalf("%s has %d and %d samples, %s %d and %d", a, one.TrainLen(), one.TestLen(), b, other.TrainLen(), other.TestLen())
	}
	for split, n := range []int64{one.TrainLen(), one.TestLen()} {
		for i := range n {
			if x, y := shown(t, one, Split(split), i), shown(t, other, Split(split), i); x != y {
				t.Fatalf("sample %d of %s is %q, of %s %q", i, a, x, b, y)
			}
		}
	}
}

// TestBadRecords: each names its line and says why; with SkipBad it is passed over and counted.
func TestBadRecords(t *testing.T) {
	t.Parallel()
	good := `{"prompt":"2","completion":"4"}`
	chats := byteFolder(t, plainChat)
	strict := byteFolder(t, `{% if messages[0].role != 'user' %}{{ raise_exception('a user begins') }}{% endif %}`+plainChat)
	changing := byteFolder(t, `{{ messages|length }}`+plainChat)
	answer := `{"messages":[{"role":"system","content":"b"},{"role":"assistant","content":"b"}]}`
	for _, c := range []struct {
		line, tokenizer string
		want            error
		words           string
	}{
		{`{"prompt":"2"}`, "", ErrCorrupt, "its fields are prompt: want text, or text and label, or prompt and completion"},
		{`{"instruction":"2","output":"4"}`, "", ErrCorrupt, "its fields are instruction, output"},
		{`{"text":"2","prompt":"2","completion":"4"}`, "", ErrCorrupt, "one of these"},
		{`{"text":"2"}`, "", ErrCorrupt, "it has text, and records before it have prompt and completion"},
		{`{"text":"2","label":0.5}`, "", ErrCorrupt, "field label is 0.5: want a class, from 0 to 1048575"},
		{`{"text":"2","label":-1}`, "", ErrCorrupt, "field label is -1"},
		{`{"label":1}`, "", ErrCorrupt, "its fields are label: want text, or text and label"},
		{`{"prompt":"2","completion":4}`, "", ErrCorrupt, "field completion is 4: want a string"},
		{`{"messages":[{"role":"user"}]}`, "", ErrCorrupt, "want a list of objects with role and content"},
		{`["prompt"]`, "", ErrCorrupt, "no object of JSON"},
		{`null`, "", ErrCorrupt, "no object of JSON"},
		{`{"prompt":"2","completion":"4"`, "", ErrCorrupt, "no object of JSON: unexpected end"},
		{`{"prompt":"","completion":""}`, "", ErrCorrupt, "no token to learn"},
		{`{"prompt":"123456789","completion":"4"}`, "", ErrTooLarge, "it has 11 tokens with its end, and a sample of 8 (--length) takes 9: give --length 10"},
		{answer, "", ErrOption, "messages need a chat template: give --tokenizer a folder with chat_template.jinja"},
		{answer, strict, ErrCorrupt, "the template refuses the messages: a user begins"},
		{`{"messages":[{"role":"assistant","content":"b"}]}`, chats, ErrCorrupt, "want one before it"},
		{answer, changing, ErrCorrupt, "message 2 of the assistant changes the text before it"},
		{`{"messages":[{"role":"user","content":"b"}]}`, chats, ErrCorrupt, "has the role assistant"},
	} {
		before := good + "\n"
		if strings.Contains(c.line, "messages") {
			before = "\n"
		}
		file := write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(before+c.line+"\n"))
		o := Options{Length: 8, Tokenizer: c.tokenizer}
		_, err := Open("jsonl:"+file, o)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), "a.jsonl, line 2") {
			t.Errorf("%s: %v, want %v with %q", c.line, err, c.want, c.words)
		}
		if c.want == ErrOption || before == "\n" {
			continue
		}
		file = write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(good+"\n"+c.line+"\n"+good+"\n"))
		var met []error
		o.SkipBad, o.OnSkip = true, func(err error) { met = append(met, err) }
		set, err := Open("jsonl:"+file, o)
		if err != nil || set.TrainLen() != 1 || set.TestLen() != 1 || Skipped(set) != 1 || len(met) != 1 {
			t.Errorf("%s: %v, skipped %v", c.line, err, met)
		}
	}
	endless := byteFolder(t, "")
	numbers, err := os.ReadFile(filepath.Join(endless, "vocab.json"))
	must(t, err)
	write(t, filepath.Join(endless, "vocab.json"), bytes.Replace(numbers, []byte(`\u003c|endoftext|\u003e`), []byte("AB"), 1))
	file := write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(good))
	if _, err := Open("jsonl:"+file, Options{Length: 8, Tokenizer: endless}); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "has no token that ends a document") {
		t.Errorf("a tokenizer without an end: %v", err)
	}
	if _, err := Open("jsonl:"+write(t, filepath.Join(t.TempDir(), "a.jsonl"), []byte(good)), Options{Length: 8}); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "it needs 2") {
		t.Errorf("one record: %v", err)
	}
}

// TestDamagedParquet: files with changed, lost or added bytes are read or refused.
func TestDamagedParquet(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/parquet/*.parquet")
	must(t, err)
	r, dir := rand.New(rand.NewPCG(1, 2)), t.TempDir()
	refused := 0
	for _, file := range files {
		whole, err := os.ReadFile(file)
		must(t, err)
		for i := range 150 {
			bad := bytes.Clone(whole)
			switch i % 3 {
			case 0:
				for range 1 + r.IntN(4) {
					bad[r.IntN(len(bad))] ^= byte(1 + r.IntN(255))
				}
			case 1:
				bad = bad[:r.IntN(len(bad))]
			default: // the footer, where sizes are
				for range 1 + r.IntN(4) {
					bad[len(bad)-1-r.IntN(min(len(bad), 300))] ^= 1 << r.IntN(8)
				}
			}
			err := readParquet(write(t, filepath.Join(dir, "bad.parquet"), bad), func(r row) bool {
				_, _ = r.record()
				return true
			})
			if err != nil {
				refused++
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%s, change %d: %v", file, i, err)
				}
			}
		}
	}
	if refused < len(files)*50 {
		t.Errorf("%d refused of %d", refused, len(files)*150)
	}
}

// Any line is a record or is refused with a reason.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{"text":"a"}`, `{"prompt":"a","completion":"b"}`, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`, `{`, `null`} {
		f.Add([]byte(seed))
	}
	folder := byteFolder(f, plainChat)
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseLine("line 1", line).record()
		if err == nil {
			err = newDialogues("fuzz", Options{Length: 64, Tokenizer: folder}, tokenizer.Bytes{}).addRecord(r)
		}
		if err != nil && !explained(err) {
			t.Fatalf("%q: %v", line, err)
		}
	})
}
