package data

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"plimsoll/internal/units"
	"plimsoll/models/tokenizer"
)

// row is a record as a file has it: its fields by name, or an error, and its place in words.
type row struct {
	place  string
	fields map[string]any
	err    error
}

// record is a row of text. Other fields than these have no meaning here.
type record struct {
	form                     form
	text, prompt, completion string
	messages                 []map[string]any
	label                    int32
}

// bytes is how long a record's texts are.
func (r *record) bytes() int {
	n := len(r.text) + len(r.prompt) + len(r.completion)
	for _, m := range r.messages {
		content, _ := m["content"].(string)
		n += len(content)
	}
	return n
}

// form is how a record has its text: all records of a data set have one form.
type form string

const (
	formText     form = "text"
	formLabel    form = "text and label"
	formPrompt   form = "prompt and completion"
	formMessages form = "messages"
)

// record reads the row's fields; null is no field. Errors: ErrCorrupt.
func (r row) record() (record, error) {
	if r.err != nil {
		return record{}, r.err
	}
	var parsed record
	has := map[string]bool{}
	for name, value := range r.fields {
		if value == nil {
			continue
		}
		if wanted, ok := parsed.set(name, value); !ok {
			return record{}, fmt.Errorf("%w: field %s is %.40v: want %s", ErrCorrupt, name, value, wanted)
		}
		has[name] = true
	}
	return parsed, parsed.find(has, r.fields)
}

// set takes the value of a field, and says which values it may have.
func (r *record) set(name string, value any) (wanted string, ok bool) {
	wanted = "a string"
	switch name {
	case "text":
		r.text, ok = value.(string)
	case "prompt":
		r.prompt, ok = value.(string)
	case "completion":
		r.completion, ok = value.(string)
	case "messages":
		wanted = "a list of objects with role and content, which are strings"
		r.messages, ok = messagesOf(value)
	case "label":
		wanted = fmt.Sprintf("a class, from 0 to %d", mostLabel)
		r.label, ok = classOf(value)
	default:
		ok = true
	}
	return wanted, ok
}

// mostLabel is the largest class of a text.
const mostLabel = 1<<20 - 1

func classOf(value any) (label int32, ok bool) {
	n := -1.0
	switch value := value.(type) {
	case float64:
		n = value
	case int32:
		n = float64(value)
	case int64:
		n = float64(value)
	}
	return int32(n), n >= 0 && n <= mostLabel && n == math.Trunc(n)
}

func messagesOf(value any) ([]map[string]any, bool) {
	list, ok := value.([]any)
	all := make([]map[string]any, 0, len(list))
	for _, item := range list {
		m, is := item.(map[string]any)
		_, role := m["role"].(string)
		_, content := m["content"].(string)
		if ok = ok && is && role && content; ok {
			all = append(all, m)
		}
	}
	return all, ok
}

// find says which form the fields make.
func (r *record) find(has map[string]bool, fields map[string]any) error {
	n := 0
	for f, there := range map[form]bool{
		formText: has["text"] && !has["label"], formLabel: has["text"] && has["label"],
		formPrompt: has["prompt"] && has["completion"], formMessages: has["messages"],
	} {
		if there {
			r.form = f
			n++
		}
	}
	if n != 1 || has["prompt"] != has["completion"] && !has["messages"] {
		return fmt.Errorf("%w: its fields are %s: want text, or text and label, or prompt and completion, or messages, and one of these",
			ErrCorrupt, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
	}
	return nil
}

// openRecords is the data set of rows. Records of the form text are one text, in which a token ends each; others are samples each.
func openRecords(name string, o Options, rows iter.Seq[row]) (Dataset, error) {
	by, err := tokenizer.Open(o.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	d := newDialogues(name, o, by)
	labels := &classified{dialogues: d}
	var first form
	read := 0
	for row := range rows {
		r, err := row.record()
		if err == nil && first != "" && r.form != first {
			err = fmt.Errorf("%w: it has %s, and records before it have %s", ErrCorrupt, r.form, first)
		}
		if err == nil {
			err = d.addRecord(r)
		}
		if read += r.bytes(); err == nil && read > mostText {
			return nil, fmt.Errorf("data set %s: %w: its records up to %s have more than %s", name, ErrTooLarge, row.place, units.Bytes(mostText))
		}
		if err == nil {
			first = r.form
		}
		if err == nil && first == formLabel {
			labels.labels, labels.classes = append(labels.labels, r.label), max(labels.classes, int(r.label)+1)
		}
		if err != nil {
			if err = d.pass(row.place, 1, fmt.Errorf("data set %s: %s: %w", name, row.place, err)); err != nil {
				return nil, err
			}
		}
	}
	switch first {
	case formLabel:
		return labels, d.close()
	case formText:
		return newText(name, o, by.Name(), tokenizer.NewTokens(d.tokens, by.Size()), by.Size())
	}
	return d, d.close()
}

// addRecord appends a record. Of text alone all records are one text, in which a token ends each. Errors: those of add and openChat.
func (d *dialogues) addRecord(r record) error {
	switch r.form {
	case formText, formPrompt:
		return d.addDocument(r)
	case formLabel:
		return d.addText(r.text)
	}
	if d.chat == nil {
		c, err := openChat(d.options.Tokenizer)
		if err != nil {
			return err
		}
		d.chat = c
	}
	all, err := d.chat.segments(r.messages)
	if err != nil {
		return err
	}
	return d.add(all)
}

// addDocument appends a record behind which the end of a document stands.
func (d *dialogues) addDocument(r record) error {
	end, err := d.ending()
	switch {
	case err != nil:
		return err
	case r.form == formPrompt:
		return d.add([]segment{{r.prompt, false}, {r.completion, true}}, end)
	}
	d.tokens = append(d.by.Encode(d.tokens, []byte(r.text)), end)
	return nil
}
