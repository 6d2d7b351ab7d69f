package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"plimsoll/executor/commands"
	"plimsoll/internal/units"
)

// The geometry of a picture of tables, in pixels of the viewBox: it is legible where a page shows it 400 pixels wide.
const (
	tableWidth   = 400
	tableLeft    = 8
	streamLeft   = 58 // the names of streams, behind those of tasks
	commandsLeft = 124
	tableRight   = 392
	chipHeight   = 14
	chipLine     = 17
	chipGap      = 3
	chipLetter   = 4.9 // the width of a character, about
	deviceHead   = 26
	rowGap       = 4
	legendEnd    = 18
)

// mostVariants is how many variants of a row a picture shows.
const mostVariants = 2

// WriteCommands writes a picture of tables of commands, one below the other. Commands stand in the order of issue, a line for each change
// of the stream. Launches that follow each other are one mark. Events and turns have numbers. Notes are left out. Errors: those of w.
func WriteCommands(w io.Writer, title string, tables []commands.Table) error {
	p := &commandPicture{drawing: drawing{Chart: &Chart{Title: title}}, numbers: [2]map[string]int{{}, {}}}
	y := p.legend(0)
	for i := range tables {
		y = p.table(&tables[i], y)
	}
	picture := p.b.String()
	return writePicture(w, title, tableLeft, tableWidth, y+rowGap, func(begin string) string {
		return fmt.Sprintf(`%s role="img" aria-label="%s">`, begin, escape(title)) + picture + `<style>` + chipCSS + `</style></svg>`
	})
}

// chipCSS is the style of commands' marks beside the pages'.
const chipCSS = ".chip{font-size:9.5px}.line{fill:var(--ink);font-size:10px}.stream{font-size:9px}.outline{fill:none;stroke-width:1}.k0{fill:var(--w0)}.k1{fill:var(--w6)}.k2{stroke:var(--muted)}.k3{stroke:var(--w5)}.k4{fill:var(--grid);stroke:var(--line)}" +
	".on0,.on1{fill:var(--bar)}.on2,.on4{fill:var(--ink)}.on3{fill:var(--w5)}"

// commandPicture draws tables of commands.
type commandPicture struct {
	drawing
	numbers [2]map[string]int // of events, of turns
	x       float64           // behind the latest mark of the line
}

// chip is a mark for a command, or for launches that follow each other.
type chip struct {
	stream string
	kind   int // of its color: launches, copies and messages, events, turns, work
	text   string
	told   string // to the pointer
}

// chipKinds are the kinds of marks by verb.
var chipKinds = map[commands.Verb]int{
	commands.Launch: 0, commands.Copy: 1, commands.Send: 1, commands.Receive: 1, commands.Record: 2, commands.Wait: 2, commands.Give: 3, commands.Take: 3,
	commands.Work: 4,
}

func (p *commandPicture) legend(y float64) float64 {
	p.x = tableLeft
	for kind, text := range []string{"launches", "copies, messages", "events", "turns of drivers", "work of the host"} {
		p.mark(y, chip{kind: kind, text: text})
	}
	return y + legendEnd
}

func (p *commandPicture) table(t *commands.Table, y float64) float64 {
	p.text(tableLeft, y+16, "start", "panel", fmt.Sprintf("%s: a period is %s", t.Device, t.Period))
	y += deviceHead
	for i := range t.Rows {
		y = p.row(&t.Rows[i], y)
	}
	return y
}

// row draws a row from y on and returns where it ends. A variant of notes alone is left out.
func (p *commandPicture) row(r *commands.Row, y float64) float64 {
	steady := r.Steady()
	for i, list := range steady[:min(len(steady), mostVariants)] {
		chips := p.chips(list)
		if len(chips) == 0 {
			continue
		}
		p.printf(`<path class="rule" d="M%d %.1fH%d"/>`, tableLeft, y-rowGap/2, tableRight)
		p.text(tableLeft, y+11, "start", "line", r.Task)
		end := p.list(chips, y)
		if len(steady) > 1 {
			p.text(tableLeft, y+11+chipLine, "start", "stream", fmt.Sprintf("%d of %d", i+1, len(steady)))
			end = max(end, y+2*chipLine)
		}
		y = end + rowGap
	}
	if more := len(steady) - mostVariants; more > 0 {
		p.text(tableLeft, y+11, "start", "stream", units.Count(more, "more variant"))
		y += chipLine
	}
	return y
}

// list draws marks from y on and returns where they end.
func (p *commandPicture) list(chips []chip, y float64) float64 {
	stream := ""
	for i, c := range chips {
		changes := c.stream != commands.Driver && stream != "" && c.stream != stream
		if i == 0 || changes || p.x+c.width() > tableRight {
			if i > 0 {
				y += chipLine
			}
			p.x = commandsLeft
			if changes {
				stream = ""
			}
		}
		if stream == "" && c.stream != commands.Driver {
			stream = c.stream
			p.text(streamLeft, y+11, "start", "stream", stream)
		}
		p.mark(y, c)
	}
	return y + chipLine
}

// chips returns the marks of commands.
func (p *commandPicture) chips(list []commands.Command) (all []chip) {
	launches := 0
	for i := range list {
		c := &list[i]
		if c.Verb == commands.Note {
			continue
		}
		if launches++; c.Verb != commands.Launch {
			launches = 0
		}
		next := chip{stream: c.Stream, kind: chipKinds[c.Verb], text: p.label(c, launches), told: c.Name()}
		if last := len(all) - 1; launches > 1 && all[last].stream == c.Stream {
			next.told = all[last].told + "\n" + next.told
			all[last] = next
			continue
		}
		all = append(all, next)
	}
	return all
}

// label is the text in a mark.
func (p *commandPicture) label(c *commands.Command, launches int) string {
	switch c.Verb {
	case commands.Launch:
		if launches == 1 {
			return "1 launch"
		}
		return fmt.Sprintf("%d launches", launches)
	case commands.Record, commands.Wait:
		return fmt.Sprintf("%v %d", c.Verb, place(p.numbers[0], c.What))
	case commands.Give, commands.Take:
		return fmt.Sprintf("%v %d", c.Verb, place(p.numbers[1], c.What))
	case commands.Work:
		return c.What
	}
	return fmt.Sprintf("%v %s", c.Verb, shortBytes(c.Bytes))
}

// shortBytes is units.Bytes without zeros at the end: "48 KiB".
func shortBytes(n int64) string {
	number, unit, _ := strings.Cut(units.Bytes(n), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return number + " " + unit
}

// place returns the number of a name, from 1 in the order in which they come.
func place(all map[string]int, name string) int {
	if all[name] == 0 {
		all[name] = len(all) + 1
	}
	return all[name]
}

func (c *chip) width() float64 { return chipLetter*float64(len(c.text)) + 8 }

// mark draws a mark behind the latest one.
func (p *commandPicture) mark(y float64, c chip) {
	class := fmt.Sprintf("k%d", c.kind)
	if c.kind == 2 || c.kind == 3 {
		class += " outline"
	}
	p.printf(`<g><title>%s</title><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d" rx="3"/>`, escape(cmp.Or(c.told, c.text)), class, p.x, y, c.width(), chipHeight)
	p.text(p.x+c.width()/2, y+10.5, "middle", fmt.Sprintf("chip on%d", c.kind), c.text)
	p.printf(`</g>`)
	p.x += c.width() + chipGap
}
