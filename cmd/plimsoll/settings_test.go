package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// withSettings calls do for every command that has --option or --debug, found by its path under a root.
func withSettings(do func(path []string, s *settings)) {
	var visit func(path []string, cmd *cobra.Command)
	visit = func(path []string, cmd *cobra.Command) {
		for _, s := range allSettings(cmd.Flags()) {
			do(path, s)
		}
		for _, c := range cmd.Commands() {
			visit(append(slices.Clone(path), c.Name()), c)
		}
	}
	visit(nil, (&app{}).root())
}

// valuesRead returns the values that a command has read from a command line, for its flags and its settings.
func valuesRead(t *testing.T, path []string, line ...string) map[string]string {
	t.Helper()
	cmd, rest, err := (&app{}).root().Find(append(slices.Clone(path), line...))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatalf("%v %v: %v", path, line, err)
	}
	all := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { all["--"+f.Name] = f.Value.String() })
	for _, s := range allSettings(cmd.Flags()) {
		s.VisitAll(func(f *pflag.Flag) { all[s.flag+" "+f.Name] = f.Value.String() })
	}
	return all
}

// example returns a value of a row that is not its default.
func example(r *setting, f *pflag.Flag) string {
	if few, ok := f.Value.(*oneOf); ok {
		return few.known[len(few.known)-1]
	}
	if r.takes.name == "bool" && f.DefValue == "true" {
		return "false"
	}
	return map[string]string{
		"count": "7", "number": "7", "seed": "7", "fraction": "0.25", "factor": "0.25", "portion": "25%", "size": "7KiB", "duration": "7s", "bool": "true",
		"path": "some/file", "text": "host:7",
	}[r.takes.name]
}

// Every flag of an earlier version sets what its setting does, in every command, under each of the setting's names.
func TestOldFlagsSetTheirSettings(t *testing.T) {
	t.Parallel()
	checked, rows := 0, map[*setting]bool{}
	withSettings(func(path []string, s *settings) {
		before := valuesRead(t, path)
		s.VisitAll(func(f *pflag.Flag) {
			row, _ := s.row(f.Name)
			rows[row] = true
			value := example(row, f)
			for _, name := range row.names() {
				now := valuesRead(t, path, "--"+s.flag, name+"="+value)
				if maps.Equal(now, before) {
					t.Errorf("%v: --%s %s=%s changes nothing", path, s.flag, name, value)
				}
				if row.old == "" {
					continue
				}
				if was := valuesRead(t, path, "--"+row.old+"="+value); !maps.Equal(was, now) {
					t.Errorf("%v: --%s=%s sets %v, --%s %s sets %v", path, row.old, value, was, s.flag, name, now)
				}
				checked++
			}
		})
	})
	if all := len(optionTable) + len(debugTable); len(rows) != all || checked < 200 {
		t.Errorf("%d old flags of commands were compared; commands have %d of %d settings", checked, len(rows), all)
	}
}

// Plans are the same bytes by an old flag and by its setting; the old flag is noted on one line, and the setting on none.
func TestOldFlagsPlanTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := []string{"plan", "-c", five, "--memory", "70%", "--bandwidth", "1000B/s"}
	several := []string{"plan", "-c", five, "--devices", "2", "--bandwidth", "1GB/s"}
	for i, c := range []struct {
		line     []string
		old, now string // the value stands between
		changes  bool   // the plan is not that of the default
	}{
		{append(one, "--strategy", "rotor"), "--slots 9", "rotor.slots=9", true},
		{append(one, "--strategy", "offload-dynprog"), "--slots 40", "offload-dynprog.slots=40", false},
		{append(one, "--strategy", "pofo"), "--pofo-slots 20", "pofo.slots=20", false},
		{append(one, "--strategy", "branch-and-bound"), "--states 3000", "branch-and-bound.states=3000", false},
		{append(one, "--memory", "1GiB", "--strategy", "periodic"), "--segments 2", "periodic.segments=2", true},
		{append(one, "--memory", "80%"), "--tolerance 20%", "auto.tolerance=20%", true},
		{append(several, "--strategy", "interleaved"), "--chunks 1", "interleaved.chunks=1", true},
		{append(several, "--strategy", "k-periodic"), "--per-period 2", "k-periodic.per-period=2", false},
	} {
		written := func(name string, more ...string) (string, result) {
			path := filepath.Join(dir, name+string(rune('a'+i)))
			r := works(t, slices.Concat(c.line, more, []string{"-o", path})...)
			return read(t, path), r
		}
		old, r := written("old", strings.Fields(c.old)...)
		now, s := written("new", "--option", c.now)
		unset, _ := written("unset")
		if old != now || c.changes && now == unset {
			t.Errorf("%s:\n%s\n--option %s:\n%s\nwithout:\n%s", c.old, old, c.now, now, unset)
		}
		flag, _, _ := strings.Cut(c.old, " ")
		if want := "the next version does not know " + flag + ": give --option " + c.now + "\n"; !strings.HasPrefix(r.err, want) || strings.TrimPrefix(r.err, want) != s.err {
			t.Errorf("%s notes\n%q\nand --option %s\n%q", c.old, r.err, c.now, s.err)
		}
	}
}

// A run is the same bits by old flags and by settings, and --quiet says nothing of old flags.
func TestOldFlagsTrainTheSame(t *testing.T) {
	t.Parallel()
	sum := func(more string) any {
		line := "train -m tiny --image 16 --batch 8 --steps 2 --devices cpu*2 --strategy gpipe --lr-schedule step -q " + more
		r := object(t, strings.Fields(line)...)
		return r["weights_sha256"]
	}
	old := sum("--profile-steps 1 --threads 1 --momentum 0.5 --lr-step 1 --lr-gamma 0.3 --deferred-batchnorm --chaos 3 --patience 1m --portals=false --channels 1")
	now := sum("--option profile.steps=1 --debug threads=1 --option sgd.momentum=0.5 --option step.every=1 --option step.gamma=0.3 --option batchnorm.deferred " +
		"--debug chaos=3 --debug patience=1m --debug portals=false --option data.channels=1")
	if plain := sum("--option step.every=1"); old != now || now == plain || now == nil {
		t.Errorf("old flags %v, settings %v, neither %v", old, now, plain)
	}
	line := strings.Fields("plan -c " + five + " --memory 1GiB --strategy periodic --segments 2 -q")
	if r := works(t, line...); r.err != "" {
		t.Errorf("with --quiet: %s", r.err)
	}
}

// Settings that are wrong are refused by name, and what is known is said.
func TestSettingErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"plan --option rotr.slots=5":           `--option rotr.slots=5: unknown name "rotr": did you mean rotor? known are auto, rotor, `,
		"plan --option rotor.slits=5":          `--option rotor.slits=5: of rotor: unknown key "slits": did you mean slots? known are slots`,
		"plan --option rotor=5":                `--option rotor=5: unknown name "rotor"`,
		"plan --option world.rank=1":           `unknown name "world"`,
		"plan --option rotor.slots":            "--option rotor.slots has no value: give a whole number from 1, as in --option rotor.slots=VALUE",
		"plan --option rotor.slots=abc":        `--option rotor.slots is "abc": give a whole number from 1`,
		"plan --slots=abc":                     `--slots is "abc": give a whole number from 1`,
		"plan --option capper.high-memory=40%": `--option capper.high-memory: "40%" is no size: give it, as in 4GiB`,
		"plan --option milp.gap=5":             "--option milp.gap: ",
		"plan --option milp.time-limit=-3s":    "--option milp.time-limit is -3s: give a time, as in 10s or 5m",
		"train --debug chaoss=5":               `--debug chaoss=5: unknown key "chaoss": did you mean chaos? known are threads, `,
		"train --debug vendor=maybe":           `--debug vendor: unknown value "maybe": `,
		"train --debug no-graph=perhaps":       `--debug no-graph is "perhaps": give true or false`,
		"train --debug device-memory=much":     "--debug device-memory: ",

		"plan --strategy pofo --option rotor.slots=5":                    "--option rotor.slots is a setting of rotor, and --strategy is pofo: leave it out, or give --strategy rotor",
		"plan --option milp.gap=1%":                                      "--option milp.gap is a setting of milp, and no --strategy is given",
		"validate --strategy rotor,pofo --option periodic.segments=5":    "--option periodic.segments is a setting of periodic, and --strategy is rotor,pofo",
		"train --optimizer adamw --option adam.eps=1e-6":                 "--option adam.eps is a setting of adam, and --optimizer is adamw",
		"train --option step.every=5":                                    "--option step.every is a setting of step, and --lr-schedule is constant",
		"plan --devices 4 --option auto.tolerance=5%":                    "--option auto.tolerance is for one device",
		"plan --devices 4 --option rotor.slots=5":                        "--option rotor.slots is for one device",
		"train -m tiny --option world.rank=1":                            "--option world.rank is for several processes",
		"plan --slots 5 --option rotor.slots=6":                          "--slots is 5 and --option rotor.slots is 6: they are one setting, give one of them",
		"plan --option rotor.slots=6 --slots 5":                          "--option rotor.slots is 6 and --slots is 5: they are one setting",
		"plan --option rotor.slots=6 --option offload-dynprog.slots=5":   "--option rotor.slots is 6 and --option offload-dynprog.slots is 5: they are one setting",
		"train --threads 1 --debug threads=2":                            "--threads is 1 and --debug threads is 2: they are one setting",
		"plan --budget 10s --strategy rotor -c c --memory 1GiB":          "--budget is 10s with --strategy rotor: it goes only with auto",
		"train --devices cpu*2 -m tiny --option capper.high-memory=1GiB": "--option capper.high-memory is for one device",
	} {
		if r := plimsoll(t, strings.Fields(line)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit code %d, %s\nwant %s", line, r.code, r.err, want)
		}
	}
	for _, line := range []string{
		"--slots 5 --option rotor.slots=5", "--option rotor.slots=6 --option rotor.slots=5", "--option rotor.slots=5 --option offload-dynprog.slots=5",
		"--option capper.high-memory=1GiB", "--option auto.tolerance=0",
	} { // that agree, or of which the last counts, or are those of a member of auto
		works(t, append([]string{"plan", "-c", five, "--memory", "1GiB"}, strings.Fields(line)...)...)
	}
}

// capper.high-memory is the limit that capper's recomputation keeps: at the limit itself nothing is left to offload.
func TestHighMemory(t *testing.T) {
	t.Parallel()
	transfers := func(more ...string) float64 {
		return object(t, append([]string{"plan", "-c", five, "--memory", "70%", "--bandwidth", "1000B/s", "--strategy", "capper"}, more...)...)["transfers"].(float64)
	}
	limit := object(t, "plan", "-c", five, "--memory", "70%", "--strategy", "rotor-exact")["memory_bytes"].(float64)
	if with, without := transfers("--option", "capper.high-memory="+strconv.Itoa(int(limit))), transfers(); with != 0 || without == 0 {
		t.Errorf("%v transfers, and by default %v", with, without)
	}
}

var flagLine = regexp.MustCompile(`(?m)^ +(-\w, )?--([a-z0-9-]+)`)

// The help text of train lists at most 48 flags, and no help text lists one of an earlier version.
func TestHelpListsFewFlags(t *testing.T) {
	t.Parallel()
	own, _, _ := strings.Cut(works(t, "train", "--help").out, "Global Flags:")
	if listed := flagLine.FindAllString(own, -1); len(listed) < 35 || len(listed) > 48 {
		t.Errorf("%d flags: %q", len(listed), listed)
	}
	checked := 0
	withSettings(func(path []string, s *settings) {
		listed := map[string]bool{}
		text := works(t, append(slices.Clone(path), "--help")...).out
		for _, m := range flagLine.FindAllStringSubmatch(text, -1) {
			listed[m[2]] = true
		}
		for _, r := range s.shown() {
			if listed[r.old] {
				t.Errorf("%v --help lists --%s", path, r.old)
			}
			for _, name := range r.names() {
				if !regexp.MustCompile(`(?m)^  (?:.* )?` + regexp.QuoteMeta(name) + `\b`).MatchString(text) {
					t.Errorf("%v --help does not name %s", path, name)
				}
			}
			checked++
		}
	})
	if checked < 100 {
		t.Errorf("only %d settings were looked for", checked)
	}
}

// options prints every row, and plan --list those of each strategy.
func TestOptions(t *testing.T) {
	t.Parallel()
	text, list := works(t, "options").out, works(t, "plan", "--list").out
	for _, table := range [][]setting{optionTable, debugTable} {
		for _, r := range allRows(table) {
			for _, name := range r.names() {
				if !strings.Contains(text, "\n  "+name+" ") && !strings.Contains(text, "\n  "+name+"\n") {
					t.Errorf("options does not list %s", name)
				}
				if of, _, dotted := strings.Cut(name, "."); dotted && chosenBy(of) == "strategy" && !strings.Contains(list, "--option "+name+"=") {
					t.Errorf("plan --list does not list %s", name)
				}
			}
		}
	}
	for _, row := range object(t, "options")["options"].([]any) {
		if row := row.(map[string]any); len(row["commands"].([]any)) == 0 {
			t.Errorf("no command has %v", row["names"])
		}
	}
}

// No document, example or script has a flag of an earlier version, but those that run an earlier build.
func TestScriptsHaveNoOldFlags(t *testing.T) {
	t.Parallel()
	var old []string
	for _, r := range slices.Concat(optionTable, debugTable) {
		if r.old != "" {
			old = append(old, r.old)
		}
	}
	wrong := regexp.MustCompile("(?m)^.*[ `\\[(]--(?:" + strings.Join(old, "|") + ")(?:[ =`]|$).*$")
	earlier := []string{"same-weights.sh", "by-turns.sh"}
	files := 0
	for _, pattern := range []string{"docs/*.md", "README.md", "SECURITY.md", "CONTRIBUTING.md", "Makefile", ".ci/*", "bench/*.sh", "bench/gpu/*", "examples/*/*"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err != nil || info.IsDir() || slices.Contains(earlier, filepath.Base(path)) {
				continue
			}
			files++
			for _, line := range wrong.FindAllString(read(t, path), -1) {
				if !strings.Contains(line, "srun") { // which has a --wait of its own
					t.Errorf("%s: %s", path, line)
				}
			}
		}
	}
	if files < 40 {
		t.Errorf("only %d files were read", files)
	}
}
