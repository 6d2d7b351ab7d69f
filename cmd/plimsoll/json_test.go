package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"plimsoll/bench"
	"plimsoll/bench/validate"
	"plimsoll/executor/train"
)

// printedTypes are the types of the objects that commands print with --json, by their headings in docs/json.md.
var printedTypes = map[string]any{
	"`plan` and `check`":          planFigures{},
	"`plan --list`":               strategyList{},
	"`frontier`":                  frontierFigures{},
	"`fit`":                       train.Fit{},
	"`profile`":                   profileFigures{},
	"`train`":                     trainFigures{},
	"`evaluate`":                  evaluateFigures{},
	"`generate`":                  generateFigures{},
	"`tokenize`":                  tokenizeFigures{},
	"`validate` and `demo`":       bench.Report{},
	"`validate`, several devices": validate.Report{},
	"`bench`":                     benchFigures{},
	"`bench pipelines`":           pipelineBenchFigures{},
	"`trace`":                     traceFigures{},
	"`report`":                    reportList{},
	"`convert`":                   convertFigures{},
	"`import`":                    chainFigures{},
	"`models`":                    modelList{},
	"`options`":                   settingList{},
	"`devices`":                   deviceList{},
	"`version`":                   versionFigures{},
	"Errors":                      failure{},
}

// jsonObject is the heading of a printed type, and command lines that print it.
type jsonObject struct {
	heading string
	lines   [][]string
}

func jsonObjects(t *testing.T) []jsonObject {
	t.Helper()
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	works(t, "plan", "-c", five, "--memory", "70%", "-o", at("p.json"))
	tiny := []string{"-m", "tiny", "--batch", "8", "--image", "16", "--steps", "2", "--option", "profile.steps=1", "-q"}
	of := func(command string, more ...string) []string { return slices.Concat([]string{command}, tiny, more) }
	works(t, of("train", "--out", at("run"))...)
	text := func(command string, more ...string) []string {
		return slices.Concat([]string{command, "-m", "gpt2-1-16", "--length", "8", "-q"}, more)
	}
	segment := func(command string, more ...string) []string {
		return slices.Concat([]string{command, "-m", "unetseg-1-2", "--image", "32", "--batch", "4", "-q"}, more)
	}
	table := tables + "gpipe_4ranks_1stages_8mb.csv"
	return []jsonObject{
		{"`plan` and `check`", [][]string{
			{"plan", "-c", five, "--memory", "55%", "--bandwidth", "80B/s"}, {"check", "-c", five, "-p", at("p.json")},
			{"plan", "-c", five, "--memory", "70%", "--strategy", "offload-dynprog", "--bandwidth", "1000B/s"},
			{"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--strategy", "gpipe"}, {"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s", "--memory", "900"},
			{"check", "-p", table, "--noise", "10%", "--runs", "2"},
		}},
		{"`plan --list`", [][]string{{"plan", "--list"}}},
		{"`frontier`", [][]string{{"frontier", "-c", five, "--points", "3"}}},
		{"`fit`", [][]string{
			{"fit", "-m", "tiny", "--batch", "8", "--image", "16", "--memory", "60%"},
			{"fit", "-m", "tiny", "--batch", "8", "--image", "16", "--devices", "cpu*2"},
		}},
		{"`profile`", [][]string{{"profile", "-m", "tiny", "--batch", "8", "--image", "16", "--option", "profile.steps=1"}}},
		{"`train`", [][]string{
			of("train"), of("train", "--offload-state", "optimizer", "--bandwidth", "1GB/s"), of("train", "--devices", "cpu*2", "--strategy", "1f1b*"),
			segment("train", "--steps", "1", "--strategy", "store-all", "--out", at("masks")),
			text("train", "--batch", "8", "--steps", "1", "--strategy", "store-all", "--out", at("text")),
		}},
		{"`evaluate`", [][]string{text("evaluate", "--weights", at("text")), segment("evaluate", "--weights", at("masks"))}},
		{"`generate`", [][]string{text("generate", "--weights", at("text"), "--prompt", "a", "--tokens", "2")}},
		{"`tokenize`", [][]string{{"tokenize", "--data", "opticks", "--output", at("tokens.bin")}}},
		{"`validate` and `demo`", [][]string{of("validate", "--memory", "100%,10%", "--strategy", "rotor"), {"demo", "-m", "tiny", "--batch", "8", "--image", "16", "--steps", "2", "--out", at("demo"), "-q"}}},
		{"`validate`, several devices", [][]string{of("validate", "--devices", "cpu*2", "--strategy", "1f1b*,gpipe", "--simulated", "--draws", "1", "--minibatches", "8")}},
		{"`bench`", [][]string{{"bench", "-c", five, "--points", "2", "--strategy", "rotor,pofo", "--out", at("bench")}}},
		{"`bench pipelines`", [][]string{{"bench", "pipelines", "-c", five, "--devices", "2", "--memory", "1kB,10B", "--bandwidths", "1GB/s", "--strategy", "contiguous,madpipe", "--out", at("pipelines")}}},
		{"`trace`", [][]string{{"trace", "-c", five, "-p", at("p.json"), "-o", at("t.json"), "--svg", at("t.svg")}}},
		{"`report`", [][]string{{"report", at("run")}}},
		{"`convert`", [][]string{{"convert", "-c", five, "-p", at("p.json"), "-o", at("p.txt")}}},
		{"`import`", [][]string{{"import", five}}},
		{"`models`", [][]string{{"models"}}},
		{"`options`", [][]string{{"options"}}},
		{"`devices`", [][]string{{"devices", "--devices", "cpu*2"}}},
		{"`version`", [][]string{{"version"}, {"--version"}}},
		{"Errors", nil},
	}
}

// docs/json.md lists what every command prints: each field of the types that are printed, and none else; and every command is there.
// Only this test finds a printed field that docs/json.md lacks, and a documented field that no command prints.
func TestDocumentedJSON(t *testing.T) {
	t.Parallel()
	doc, headings := readJSONDoc(t), map[string]bool{}
	commands := map[string]bool{}
	for _, o := range jsonObjects(t) {
		fields := map[string]bool{}
		typeFields(reflect.TypeOf(printedTypes[o.heading]), "", fields)
		known := maps.Clone(fields)
		for _, line := range o.lines {
			cmd, _, err := (&app{}).root().Find(line)
			if err != nil {
				t.Fatal(err)
			}
			commands[cmd.CommandPath()] = true
			printed := map[string]bool{}
			printedFields(object(t, line...), "", printed)
			for f := range printed {
				if _, ok := fields[f]; !ok && !ownWriter(known, f) {
					t.Errorf("%v prints %s, which its type has not", line, f)
				}
				fields[f] = true
			}
		}
		documented := map[string]bool{}
		doc.collect(o.heading, "", documented, headings)
		for f := range fields {
			if !documented[f] {
				t.Errorf("docs/json.md, %s: `%s` is missing", o.heading, f)
			}
		}
		for f := range documented {
			if _, ok := fields[f]; !ok {
				t.Errorf("docs/json.md, %s: there is no `%s`", o.heading, f)
			}
		}
	}
	for heading := range doc {
		if !headings[heading] {
			t.Errorf("docs/json.md: nothing prints %s", heading)
		}
	}
	for heading := range headings {
		if doc[heading] == nil {
			t.Errorf("docs/json.md lists no fields under %q", heading)
		}
	}
	everyCommand(t, commands)
}

// everyCommand checks that all commands that print an object are among those that ran.
func everyCommand(t *testing.T, ran map[string]bool) {
	t.Helper()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		printsItself := cmd.Name() != "help" && cmd.Name() != "launch" // whose processes do
		if cmd.HasParent() && printsItself && !ran[cmd.CommandPath()] {
			t.Errorf("%s is not in docs/json.md and this test", cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit((&app{}).root())
}

// jsonField is a field that docs/json.md lists.
type jsonField struct {
	object string // the heading that lists the fields of its object, "" when it is none
	list   bool   // of such objects
}

// jsonDoc has the fields that docs/json.md lists, by heading and name.
type jsonDoc map[string]map[string]jsonField

// fieldsItem is an item of a list: fields and their meaning.
var fieldsItem = regexp.MustCompile("^- (`[^:]*`): (.+)$")

// readJSONDoc reads docs/json.md.
func readJSONDoc(t *testing.T) jsonDoc {
	t.Helper()
	doc, heading := jsonDoc{}, ""
	name, link := regexp.MustCompile("`([^`]*)`"), regexp.MustCompile(`(list of )?\[([^\]]*)\]\(#`)
	for line := range strings.SplitSeq(strings.ReplaceAll(read(t, "../../docs/json.md"), "\n  ", " "), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line {
			heading = strings.TrimSpace(title)
		}
		item := fieldsItem.FindStringSubmatch(line)
		if item == nil {
			continue
		}
		var f jsonField
		if l := link.FindStringSubmatch(item[2]); l != nil {
			f = jsonField{object: l[2], list: l[1] != ""}
		}
		if doc[heading] == nil {
			doc[heading] = map[string]jsonField{}
		}
		for _, m := range name.FindAllStringSubmatch(item[1], -1) {
			if _, ok := doc[heading][m[1]]; ok {
				t.Errorf("docs/json.md, %s: `%s` is there twice", heading, m[1])
			}
			doc[heading][m[1]] = f
		}
	}
	return doc
}

// collect collects the fields under a heading and in the objects that it links, and the headings that it reads.
func (d jsonDoc) collect(heading, path string, fields, headings map[string]bool) {
	headings[heading] = true
	for name, f := range d[heading] {
		at := path + name
		fields[at] = true
		if f.list {
			at += "[]"
		}
		if f.object != "" {
			d.collect(f.object, at+".", fields, headings)
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// typeFields collects the fields that a type is written with, "rows[].strategy", true where the fields in it follow from the type,
// too, false where the type writes itself. A type within itself is collected once.
func typeFields(of reflect.Type, path string, all map[string]bool, within ...reflect.Type) {
	own := of.Implements(marshaler) || reflect.PointerTo(of).Implements(marshaler)
	if path != "" {
		all[path] = !own
	}
	if own || slices.Contains(within, of) {
		return
	}
	within = append(within, of)
	switch of.Kind() {
	case reflect.Pointer:
		typeFields(of.Elem(), path, all, within...)
	case reflect.Slice, reflect.Array:
		if e := of.Elem(); e.Kind() == reflect.Struct {
			typeFields(e, path+"[]", all, within...)
			delete(all, path+"[]")
		}
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case tag == "-" || !f.IsExported() && !f.Anonymous:
			case f.Anonymous && tag == "":
				typeFields(f.Type, path, all, within...)
			default:
				typeFields(f.Type, strings.TrimPrefix(path+"."+cmp.Or(tag, f.Name), "."), all, within...)
			}
		}
	}
}

// ownWriter reports whether a field is in an object whose type writes itself.
func ownWriter(known map[string]bool, field string) bool {
	for i := len(field); i > 0; i = strings.LastIndexByte(field[:i], '.') {
		if byType, ok := known[strings.TrimSuffix(field[:i], "[]")]; ok {
			return !byType
		}
	}
	return false
}

// printedFields collects the fields of an object likewise.
func printedFields(value any, path string, all map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, x := range v {
			at := strings.TrimPrefix(path+"."+name, ".")
			all[at] = true
			printedFields(x, at, all)
		}
	case []any:
		for _, x := range v {
			if _, ok := x.(map[string]any); ok {
				printedFields(x, path+"[]", all)
			}
		}
	}
}
