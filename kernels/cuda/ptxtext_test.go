package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plimsoll/kernels/cuda/sources"
)

// entry is a kernel as the PTX has it.
type entry struct {
	module, name string
	parameters   int
	bytes        int // of the parameter, a struct
	code         []instruction
}

// instruction is a line of PTX. A predicate before the opcode is left out.
type instruction struct {
	opcode   string
	operands []string // vectors as one, with their braces
}

var (
	entryLine = regexp.MustCompile(`^\.visible \.entry (\w+)\($`)
	paramLine = regexp.MustCompile(`^\.param \.align 8 \.b8 (\w+)_param_0\[(\d+)\]$`)
)

// instructionOf reads a line; directives, labels and braces are none.
func instructionOf(line string) (i instruction, ok bool) {
	if strings.HasPrefix(line, "@") { // a predicate
		_, line, _ = strings.Cut(line, " ")
		line = strings.TrimSpace(line)
	}
	line, ended := strings.CutSuffix(line, ";")
	if !ended || line == "" || line[0] < 'a' || line[0] > 'z' {
		return i, false
	}
	if end := strings.IndexAny(line, " \t"); end >= 0 {
		return instruction{line[:end], split(line[end:])}, true
	}
	return instruction{line, nil}, true
}

// split cuts operands at commas, but for vectors.
func split(text string) (parts []string) {
	from, depth := 0, 0
	for i, c := range text {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, strings.TrimSpace(text[from:i]))
				from = i + 1
			}
		}
	}
	return append(parts, strings.TrimSpace(text[from:]))
}

// registersOf returns the names of registers in an operand.
func registersOf(operand string) (names []string) {
	for {
		_, rest, found := strings.Cut(operand, "%")
		if !found {
			return names
		}
		end := strings.IndexAny(rest, ",+}] \t")
		if end < 0 {
			end = len(rest)
		}
		names, operand = append(names, "%"+rest[:end]), rest[end:]
	}
}

// ptxText reads the PTX and its sources once, for all tests of the PTX.
var ptxText = sync.OnceValue(func() (texts struct {
	entries []entry
	modules map[string]string
	sources sources.Set
	err     error
}) {
	if texts.sources, texts.err = sources.Read(os.DirFS("src")); texts.err != nil {
		return texts
	}
	texts.modules = map[string]string{}
	for _, name := range texts.sources.Modules() {
		text, err := sources.ReadPTX(os.DirFS("ptx"), name)
		texts.err = errors.Join(texts.err, err)
		texts.modules[name] = string(text)
		texts.entries = append(texts.entries, entriesOf(name, string(text))...)
	}
	return texts
})

// entriesOf reads the kernels of a module.
func entriesOf(module, text string) (all []entry) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := entryLine.FindStringSubmatch(line); m != nil {
			all, inside = append(all, entry{module: module, name: m[1]}), true
			continue
		}
		if inside = inside && !strings.HasPrefix(line, ".func"); !inside {
			continue
		}
		e := &all[len(all)-1]
		if i, ok := instructionOf(line); ok {
			e.code = append(e.code, i)
		} else if strings.HasPrefix(line, ".param") && len(e.code) == 0 {
			e.parameters++
			if m := paramLine.FindStringSubmatch(line); m != nil && m[1] == e.name {
				e.bytes, _ = strconv.Atoi(m[2])
			}
		}
	}
	return all
}

// field is one of a struct of args.h, nested ones and elements of arrays by themselves.
type field struct {
	name          string
	offset, bytes int
	float         bool
	address       bool // u64
}

var sizes = map[string]int{"u64": 8, "i64": 8, "double": 8, "int": 4, "unsigned": 4, "float": 4}

// structsOf lays the structs of args.h out as C does on 64 bits.
func structsOf(header string) map[string][]field {
	header = regexp.MustCompile(`//[^\n]*`).ReplaceAllString(header, "")
	constants := map[string]int{}
	for _, m := range regexp.MustCompile(`enum \{ (\w+) = (\d+) \};`).FindAllStringSubmatch(header, -1) {
		constants[m[1]], _ = strconv.Atoi(m[2])
	}
	all := map[string][]field{}
	for _, s := range regexp.MustCompile(`struct (\w+) \{([^}]*)\};`).FindAllStringSubmatch(header, -1) {
		var fields []field
		end := 0
		for _, d := range regexp.MustCompile(`(struct )?(\w+) ([^;]+);`).FindAllStringSubmatch(s[2], -1) {
			for _, name := range strings.Split(d[3], ", ") {
				fields = declare(fields, all[d[2]], d[2], name, constants, &end)
			}
		}
		if align := widest(fields); align > 0 {
			end = (end + align - 1) / align * align
		}
		all[s[1]] = append(fields, field{name: "end", offset: end})
	}
	return all
}

// declare appends the fields of a name, which may be an array or a struct.
func declare(to, nested []field, kind, name string, constants map[string]int, end *int) []field {
	name, count, array := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	n := 1
	if array {
		base, more, plus := strings.Cut(count, " + ")
		n = constants[base]
		if plus {
			extra, _ := strconv.Atoi(more)
			n += extra
		}
	}
	if nested != nil {
		align := widest(nested)
		*end = (*end + align - 1) / align * align
		for _, f := range nested[:len(nested)-1] {
			f.name, f.offset = name+"."+f.name, *end+f.offset
			to = append(to, f)
		}
		*end += nested[len(nested)-1].offset
		return to
	}
	size := sizes[kind]
	*end = (*end + size - 1) / size * size
	for range n {
		to = append(to, field{name, *end, size, kind == "float" || kind == "double", kind == "u64"})
		*end += size
	}
	return to
}

func widest(fields []field) (bytes int) {
	for _, f := range fields {
		bytes = max(bytes, f.bytes)
	}
	return bytes
}

// taker says which struct kernels of a name take.
type taker struct {
	name   *regexp.Regexp
	fields string // the struct's name
	loose  bool   // the name is joined from a macro's parameters: others are more exact
}

// takersOf reads the macros that declare kernels. A name that a macro joins from its parameters stands for any word there.
func takersOf(source string) (all []taker) {
	source = strings.ReplaceAll(source, "\\\n", " ")
	for line := range strings.Lines(source) {
		parameters := map[string]bool{}
		if m := regexp.MustCompile(`^#define \w+\(([^)]*)\)`).FindStringSubmatch(line); m != nil {
			for _, p := range strings.Split(m[1], ", ") {
				parameters[p] = true
			}
		}
		for _, m := range regexp.MustCompile(`KERNEL(?:_BOUNDS)?\(([\w#]+), struct (\w+)`).FindAllStringSubmatch(line, -1) {
			pattern, loose := "", false
			for _, part := range strings.Split(m[1], "##") {
				if parameters[part] {
					part, loose = `\w+`, true
				}
				pattern += part
			}
			all = append(all, taker{regexp.MustCompile("^" + pattern + "$"), m[2], loose})
		}
		const vectors = "(f32_v1|f32_v4|bf16_v1|bf16_v8)"
		for macro, suffix := range map[string]string{"INSTANCES": "(f32|bf16)", "CHANNEL_INSTANCES": vectors, "SUM_INSTANCES": vectors, "APPLY_INSTANCES": vectors} {
			for _, m := range regexp.MustCompile(`^`+macro+`\((\w+), (\w+)\)`).FindAllStringSubmatch(line, -1) {
				all = append(all, taker{regexp.MustCompile("^" + m[1] + "_" + suffix + "$"), m[2], false})
			}
		}
	}
	return all
}

// withHeaders is a source behind the headers that it names.
func withHeaders(all sources.Set, name string) (text string) {
	for _, m := range regexp.MustCompile(`(?m)^#include "([\w.]+)"`).FindAllStringSubmatch(all[name], -1) {
		text += all[m[1]]
	}
	return text + all[name]
}

// parameterOf returns the fields of the struct that a kernel takes.
func parameterOf(t *testing.T, e entry, takers []taker, structs map[string][]field) []field {
	t.Helper()
	for _, loose := range []bool{false, true} {
		for _, k := range takers {
			if fields := structs[k.fields]; fields != nil && k.loose == loose && k.name.MatchString(e.name) {
				return fields
			}
		}
	}
	t.Fatalf("%s.cu does not declare %s with a struct of args.h", e.module, e.name)
	return nil
}

// eachEntry calls f for each kernel and the fields of its parameter.
func eachEntry(t *testing.T, f func(e entry, fields []field)) {
	t.Helper()
	all := ptxText()
	if all.err != nil {
		t.Fatal(all.err)
	}
	structs, takers := structsOf(all.sources["args.h"]), map[string][]taker{}
	for _, name := range all.sources.Modules() {
		takers[name] = takersOf(withHeaders(all.sources, name+".cu"))
	}
	for _, e := range all.entries {
		f(e, parameterOf(t, e, takers[e.module], structs))
	}
}

// fieldAt returns the field at an offset, and whether one begins there.
func fieldAt(fields []field, offset int) (field, bool) {
	for _, f := range fields[:len(fields)-1] {
		if f.offset == offset {
			return f, true
		}
	}
	return field{}, false
}

// pointee is where an address in a kernel's parameter points: at a known offset, or at one that is computed.
type pointee struct {
	offset int
	known  bool
}

// places follows the addresses in the parameter through registers, each of which PTX of a compiler writes once, but for loops.
func (e entry) places() map[string]pointee {
	at, symbol := map[string]pointee{}, e.name+"_param_0"
	for range 3 { // loops may use what is written behind
		for _, i := range e.code {
			if len(i.operands) < 2 || strings.HasPrefix(i.opcode, "ld.") {
				continue
			}
			to, from := i.operands[0], i.operands[1]
			base, derived := at[from]
			switch {
			case i.opcode == "mov.b64" && from == symbol:
				at[to] = pointee{0, true}
			case derived && i.opcode == "mov.u64":
				at[to] = base
			case derived && i.opcode == "add.s64":
				by, err := strconv.Atoi(i.operands[2])
				at[to] = pointee{base.offset + by, base.known && err == nil}
			case len(i.operands) > 2 && i.opcode == "add.s64":
				if _, second := at[i.operands[2]]; second {
					at[to] = pointee{}
				}
			}
		}
	}
	return at
}

// parameterLoads calls f for each load from the parameter: with its offset, or -1 where that is computed.
func (e entry) parameterLoads(f func(i instruction, offset int)) {
	at, symbol := e.places(), e.name+"_param_0"
	for _, i := range e.code {
		if !strings.HasPrefix(i.opcode, "ld.param.") || len(i.operands) != 2 {
			continue
		}
		base, by, _ := strings.Cut(strings.Trim(i.operands[1], "[]"), "+")
		offset, _ := strconv.Atoi(by)
		p, ok := at[base]
		switch {
		case base == symbol:
			f(i, offset)
		case ok && p.known:
			f(i, p.offset+offset)
		case ok:
			f(i, -1)
		}
	}
}

func (e entry) String() string { return fmt.Sprintf("%s in %s.ptx", e.name, e.module) }
