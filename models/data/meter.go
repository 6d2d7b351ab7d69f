package data

import (
	"errors"
	"fmt"
	"time"

	structures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Bounds of one rendering of a template.
const (
	mostRounds  = 1 << 17 // of all loops, and calls of macros
	mostDepth   = 100     // of macros that call macros
	longestChat = time.Minute
)

// meter counts what a template does, so that each rendering ends.
type meter struct {
	rounds, depth int
	until         time.Time
	err           error // stays until the next rendering
}

// begin begins another rendering.
func (m *meter) begin() { *m = meter{until: time.Now().Add(longestChat)} }

// step counts a round of a loop, or the beginning of a macro.
func (m *meter) step() error {
	switch m.rounds++; {
	case m.err != nil:
	case m.rounds > mostRounds:
		m.err = fmt.Errorf("the template has more than %d rounds of loops and calls of macros", mostRounds)
	case m.depth > mostDepth:
		m.err = fmt.Errorf("macros of the template call each other more than %d deep", mostDepth)
	case time.Now().After(m.until):
		m.err = fmt.Errorf("the template takes more than %v", longestChat)
	}
	return m.err
}

// mark is a node of a template that tells the meter.
type mark struct {
	at    *tokens.Token
	count func() error
}

// Position implements nodes.Node.
func (m *mark) Position() *tokens.Token { return m.at }

func (m *mark) String() string { return "mark" }

// Execute implements exec.ControlStructure.
func (m *mark) Execute(*exec.Renderer, *nodes.ControlStructureBlock) error { return m.count() }

func (m *meter) node(at *tokens.Token, count func() error) nodes.Node {
	return &nodes.ControlStructureBlock{Location: at, Name: "mark", ControlStructure: &mark{at, count}}
}

// structures returns the tags that a template may have. Those that read other templates are missing, as transformers has none, and so are blocks,
// which only other templates need.
func (m *meter) structures() *exec.ControlStructureSet {
	all := map[string]parser.ControlStructureParser{}
	for _, name := range []string{"autoescape", "filter", "for", "if", "macro", "raw", "set", "with", "do", "break", "continue", "trans", "call"} {
		parse, _ := structures.All.Get(name)
		all[name] = m.metered(parse)
	}
	return exec.NewControlStructureSet(all)
}

// metered returns a parser whose loops and macros tell the meter.
func (m *meter) metered(parse parser.ControlStructureParser) parser.ControlStructureParser {
	return func(p, args *parser.Parser) (nodes.ControlStructure, error) {
		parsed, err := parse(p, args)
		if err != nil {
			return nil, err
		}
		switch s := parsed.(type) {
		case *structures.ForControlStructure:
			if s.Recursive {
				return nil, errors.New("a loop that calls itself (recursive) is not supported")
			}
			s.BodyWrapper.Nodes = append([]nodes.Node{m.node(s.Position(), m.step)}, s.BodyWrapper.Nodes...)
		case *structures.MacroControlStructure:
			enter := m.node(s.Position(), func() error { m.depth++; return m.step() })
			leave := m.node(s.Position(), func() error { m.depth--; return nil })
			s.Wrapper.Nodes = append(append([]nodes.Node{enter}, s.Wrapper.Nodes...), leave)
		}
		return parsed, nil
	}
}
