package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// kind is the rule that a sentence breaks.
type kind string

const (
	long      kind = "long"      // more than mostWords words
	predicate kind = "predicate" // a comment says that its name is what, those or that of
	opening   kind = "opening"   // it begins with What or Of a
)

const mostWords = 30

// breach is a sentence that breaks a rule.
type breach struct {
	position string
	kind     kind
	sentence string
}

func (b breach) String() string { return fmt.Sprintf("%s: %s: %s", b.position, b.kind, b.sentence) }

// check returns the breaches of a file.
func check(file string, source []byte) ([]breach, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	c := &checker{set: set, folder: path.Dir(file)}
	if !strings.HasSuffix(file, "_test.go") {
		ast.Inspect(tree, c.node)
	}
	for _, doc := range tree.Comments {
		if !isCode(tree, doc) {
			c.comment(doc)
		}
	}
	return c.found, nil
}

// isCode reports whether a comment is C code that the file imports, or the output of an example.
func isCode(tree *ast.File, doc *ast.CommentGroup) bool {
	if strings.HasPrefix(doc.Text(), "Output:") {
		return true
	}
	for _, d := range tree.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT && g.Doc == doc && g.Specs[0].(*ast.ImportSpec).Path.Value == `"C"` {
			return true
		}
	}
	return false
}

// checker collects the breaches of a file.
type checker struct {
	set    *token.FileSet
	folder string
	found  []breach
}

func (c *checker) add(at token.Pos, k kind, sentence string) {
	c.found = append(c.found, breach{c.set.Position(at).String(), k, sentence})
}

// node checks the texts of a node: messages and help texts.
func (c *checker) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		c.constants(n)
	case *ast.CallExpr:
		if textCalls.MatchString(called(n)) {
			for _, arg := range n.Args {
				c.literals(arg)
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Short" || key.Name == "Long") {
			c.literals(n.Value)
		}
	}
	return true
}

// textCalls are the functions whose string literals are messages or help texts.
var textCalls = regexp.MustCompile(`^(New|Errorf|usage|note|warn|fail|command|(String|Bool|Int|Uint64|Float64|Duration)?(Slice)?VarP?)$`)

// called returns the name of the function of a call, without its package.
func called(n *ast.CallExpr) string {
	if f, ok := n.Fun.(*ast.SelectorExpr); ok {
		return f.Sel.Name
	}
	f, _ := n.Fun.(*ast.Ident)
	return f.String()
}

// constants checks the texts of constants of commands.
func (c *checker) constants(d *ast.GenDecl) {
	for _, s := range d.Specs {
		if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.CONST && strings.HasPrefix(c.folder, "cmd/") {
			for _, x := range v.Values {
				c.literals(x)
			}
		}
	}
}

var predicates = regexp.MustCompile(`^\w+ (is|are|returns) (what|those|that of)\b`)

// comment checks a comment.
func (c *checker) comment(doc *ast.CommentGroup) {
	text := doc.Text()
	if predicates.MatchString(text) {
		c.add(doc.Pos(), predicate, sentences(text)[0])
	}
	c.sentences(doc.Pos(), text)
}

// literals checks the string literals of an expression, which may be joined by +.
func (c *checker) literals(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		c.literals(e.X)
		c.literals(e.Y)
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			c.sentences(e.Pos(), text)
		}
	}
}

// sentences checks each sentence of a text.
func (c *checker) sentences(at token.Pos, text string) {
	for _, s := range sentences(text) {
		for _, k := range faults(s) {
			c.add(at, k, s)
		}
	}
}

// faults returns the rules that a sentence breaks, of those that hold in all texts.
func faults(s string) (all []kind) {
	if len(strings.Fields(s)) > mostWords {
		all = append(all, long)
	}
	if openings.MatchString(s) && !strings.HasSuffix(s, "?") {
		all = append(all, opening)
	}
	return all
}

var (
	openings = regexp.MustCompile(`^(What|Of a) `)
	// Sentences end before a capital; "et al. 2021", "0.5" and "..." end none.
	ends = regexp.MustCompile("([^.][.!?])[)\"*]*\\s+([A-Z\"(`*[]|--)")
	// Lines of code and tables are indented by tabs.
	indented = regexp.MustCompile(`(?m)^\t.*$`)
	// Items of lists and paragraphs begin a sentence.
	breaks = regexp.MustCompile(`\n\s*(-|\d+\.) |\n\s*\n`)
)

// sentences divides a text.
func sentences(text string) (all []string) {
	for _, part := range breaks.Split(indented.ReplaceAllString(text, "\n"), -1) {
		part = ends.ReplaceAllString(strings.Join(strings.Fields(part), " "), "$1\n$2")
		for s := range strings.SplitSeq(part, "\n") {
			if s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}
