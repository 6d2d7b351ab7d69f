package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	files "plimsoll/internal/folder"
)

// segment is a piece of a record: text that a model reads, or learns to write.
type segment struct {
	text    string
	learned bool
}

// chat makes text of messages by a template in Jinja, as transformers' apply_chat_template does. The template reads no file and no clock.
// One goroutine at a time may use it.
type chat struct {
	path     string // of the template
	template *exec.Template
	tokens   map[string]string // bos_token and its like, by name
	refusal  error             // which the template raises
	meter    meter
}

const (
	chatFile   = "chat_template.jinja"
	chatConfig = "tokenizer_config.json"
	mostChat   = 1 << 20 // bytes of a template's file
	mostLoop   = 1 << 16 // rounds of a loop over range
)

// openChat reads the template of a tokenizer's folder: chat_template.jinja, else the field chat_template of tokenizer_config.json. Errors:
// ErrOption for none, and for one that cannot be parsed; ErrUnreadable.
func openChat(path string) (*chat, error) {
	if info, err := os.Stat(path); path == "" || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: messages need a chat template: give --tokenizer a folder with %s, or with %s that has chat_template", ErrOption, chatFile, chatConfig)
	}
	at := files.At(path)
	c := &chat{path: at.Path(chatFile), tokens: map[string]string{}}
	template, err := c.readConfig(at)
	if err != nil {
		return nil, err
	}
	source, err := at.ReadFile(chatFile)
	switch {
	case err == nil:
		template = string(source)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, c.path, err)
	case template == "":
		return nil, fmt.Errorf("%w: messages need a chat template: %s has neither %s nor %s with chat_template", ErrOption, path, chatFile, chatConfig)
	default:
		c.path = at.Path(chatConfig)
	}
	if len(template) > mostChat {
		return nil, fmt.Errorf("%w: %s: its chat template has %d bytes, more than %d", ErrOption, c.path, len(template), mostChat)
	}
	return c, c.parse(template)
}

// readConfig reads the names of special tokens, which are strings or objects with content, and the template, if there is one.
func (c *chat) readConfig(at *files.Dir) (template string, err error) {
	path := at.Path(chatConfig)
	all, err := at.ReadFile(chatConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(all, &fields); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrOption, path, err)
	}
	for name, raw := range fields {
		var object struct{ Content string }
		var text string
		switch {
		case !strings.HasSuffix(name, "_token"):
		case json.Unmarshal(raw, &text) == nil && string(raw) != "null":
			c.tokens[name] = text
		case json.Unmarshal(raw, &object) == nil && object.Content != "":
			c.tokens[name] = object.Content
		}
	}
	raw, found := fields["chat_template"]
	if !found || string(raw) == "null" {
		return "", nil
	}
	if err := json.Unmarshal(raw, &template); err != nil {
		return "", fmt.Errorf("%w: %s: chat_template is no string: write the template that you want into %s", ErrOption, path, chatFile)
	}
	return template, nil
}

// parse makes the template, with the settings of transformers.
func (c *chat) parse(source string) (err error) {
	defer c.recover(&err)
	settings := config.New()
	settings.TrimBlocks, settings.LeftStripBlocks = true, true
	sources, err := loaders.NewMemoryLoader(map[string]string{"/chat": source})
	if err != nil {
		return err
	}
	globals := exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables).Update(exec.NewContext(map[string]any{
		"raise_exception": func(_ *exec.Evaluator, p *exec.VarArgs) *exec.Value {
			c.refusal = errors.New("the template refuses the messages")
			if len(p.Args) > 0 {
				c.refusal = fmt.Errorf("%w: %s", c.refusal, p.Args[0].String())
			}
			return exec.AsValue(c.refusal)
		},
		"range":  count,
		"lipsum": exec.AsValue(nil), // random
	}))
	c.template, err = exec.NewTemplate("/chat", settings, sources, &exec.Environment{
		Context: globals, Filters: builtins.Filters, Tests: builtins.Tests, ControlStructures: c.meter.structures(), Methods: builtins.Methods,
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOption, c.path, err)
	}
	return nil
}

// count is range(stop), range(start, stop) or range(start, stop, step).
func count(_ *exec.Evaluator, p *exec.VarArgs) *exec.Value {
	from, to, step := 0, 0, 1
	for i, into := range [][]*int{{&to}, {&from, &to}, {&from, &to, &step}}[min(max(len(p.Args), 1), 3)-1] {
		if i >= len(p.Args) || !p.Args[i].IsInteger() {
			return exec.AsValue(errors.New("range takes one to three integers"))
		}
		*into = p.Args[i].Integer()
	}
	numbers := []int{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if numbers = append(numbers, i); len(numbers) > mostLoop {
			return exec.AsValue(fmt.Errorf("range has more than %d numbers", mostLoop))
		}
	}
	return exec.AsValue(numbers)
}

// recover makes an error of a panic of the library, which some templates cause.
func (c *chat) recover(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %s: %v", ErrCorrupt, c.path, p)
	}
}

// render makes text of messages; prompt asks for the words before an answer.
func (c *chat) render(messages []map[string]any, prompt bool) (text string, err error) {
	defer c.recover(&err)
	values := map[string]any{"messages": messages, "add_generation_prompt": prompt}
	for name, token := range c.tokens {
		values[name] = token
	}
	c.refusal = nil
	c.meter.begin()
	text, err = c.template.ExecuteToString(exec.NewContext(values))
	if stopped := cmp.Or(c.refusal, c.meter.err); stopped != nil {
		err = stopped
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrCorrupt, c.path, err)
	}
	return text, nil
}

// segments makes text of a conversation. A model learns to write each message of the assistant, from behind the words that ask for it to
// the end of the text with this message. Errors: ErrCorrupt for messages that the template refuses, for none of the assistant, and for a
// template that changes earlier text when messages are added.
func (c *chat) segments(messages []map[string]any) (all []segment, err error) {
	before := ""
	for i, m := range messages {
		if m["role"] != "assistant" {
			continue
		}
		if i == 0 {
			return nil, fmt.Errorf("%w: the first message has the role assistant: want one before it, which it answers", ErrCorrupt)
		}
		asked, err := c.render(messages[:i], true)
		if err != nil {
			return nil, err
		}
		answered, err := c.render(messages[:i+1], false)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(asked, before) || !strings.HasPrefix(answered, asked) {
			return nil, fmt.Errorf("%w: %s: message %d of the assistant changes the text before it: such templates do not say which tokens to learn", ErrCorrupt, c.path, i+1)
		}
		all = append(all, segment{asked[len(before):], false}, segment{answered[len(asked):], true})
		before = answered
	}
	if all == nil {
		return nil, fmt.Errorf("%w: none of %d messages has the role assistant: there is nothing to learn", ErrCorrupt, len(messages))
	}
	return all, nil
}
