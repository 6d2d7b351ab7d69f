package interop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll/internal/fields"
	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// steps returns a chain of n equal layers.
func steps(n int) *chain.Chain {
	c := &chain.Chain{Name: "steps", InputBytes: 1}
	for range n {
		c.Layers = append(c.Layers, chain.Layer{ForwardS: 1, BackwardS: 1, OutputBytes: 1, SavedBytes: 1, GradientBytes: 1})
	}
	return c
}

// TestActionsOfPackage: every schedule that checkpoint_schedules 1.0.4 printed into testdata becomes a sequence that keeps
// the rules and runs each step as often as the actions say.
func TestActionsOfPackage(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/checkpoint_schedules/*.txt")
	if err != nil || len(files) != 22 {
		t.Fatalf("%d files of 22, %v", len(files), err)
	}
	for _, file := range files {
		a, err := parseFile(t, file, ParseActions)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range a.Steps {
			if s.Name == "Reverse" {
				n = max(n, s.Last)
			}
		}
		seq, err := a.Sequence(n)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := schedule.Verify(steps(n), seq); err != nil {
			t.Errorf("%s: %v\n%v", file, err, seq)
		}
		compareRuns(t, a, n, seq)
	}
}

// compareRuns counts how often each layer runs forward, saving or not, in the actions and in the sequence.
func compareRuns(t *testing.T, a *Actions, n int, seq schedule.Sequence) {
	t.Helper()
	want, got := make([][2]int, n+1), make([][2]int, n+1)
	for _, s := range a.Steps {
		for k := s.First; s.Name == "Forward" && k < min(s.Last, n); k++ {
			if s.KeepSets {
				want[k+1][0]++
			} else {
				want[k+1][1]++
			}
		}
	}
	for _, op := range seq {
		switch op.Kind {
		case schedule.ForwardAll:
			got[op.Layer][0]++
		case schedule.ForwardCheckpoint, schedule.ForwardDiscard:
			got[op.Layer][1]++
		}
	}
	for l := range want {
		if want[l] != got[l] {
			t.Errorf("%s: layer %d runs %v times (saving, not), the actions say %v", a.File, l, got[l], want[l])
		}
	}
}

// TestActionsMemory: the checkpoints in RAM bound the memory. With sizes of 1, revolve with k snapshots needs exactly the snapshots and the
// operands of a backward: input, saved set and two gradients. Snapshots on disk cost nothing.
func TestActionsMemory(t *testing.T) {
	t.Parallel()
	for file, most := range map[string]int64{
		"revolve_4_2": 2 + 4, "revolve_10_3": 3 + 4, "revolve_20_2": 2 + 4, "multistage_12_2_2": 2 + 4, "multistage_15_0_3": 0 + 4,
	} {
		a, err := parseFile(t, "testdata/checkpoint_schedules/"+file+".txt", ParseActions)
		if err != nil {
			t.Fatal(err)
		}
		n := a.Steps[0].Last
		for _, s := range a.Steps {
			n = max(n, s.Last)
		}
		seq, err := a.Sequence(n)
		if err != nil {
			t.Fatal(err)
		}
		r, err := schedule.Simulate(steps(n), seq, schedule.Limits{Memory: schedule.NoLimit, Link: schedule.Link{Bandwidth: 1e9}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Peak > most {
			t.Errorf("%s: peak %d, at most %d: %v", file, r.Peak, most, seq)
		}
	}
}

// TestActionsText: the guide's Revolve(4, 2), op by op.
func TestActionsText(t *testing.T) {
	t.Parallel()
	a, err := parseFile(t, "testdata/checkpoint_schedules/revolve_4_2.txt", ParseActions)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := a.Sequence(4)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := seq.String(), "Fck1 F2 Fck3 Fall4 B4 Fall3 B3 Fck1 Fall2 B2 Fall1 B1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestActionsSpellings(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"Forward(0, 1, False, True, StorageType.WORK)\nEndForward()\nReverse(1, 0, True)\nEndReverse()\n",
		"[Forward(0, 9223372036854775807, False, True, <StorageType.WORK: -1>), EndForward(), Reverse(1, 0, True), EndReverse()]",
		"# comment\r\nForward(0, sys.maxsize, False, True, 'work')\r\nReverse(1,0,True) # end",
	} {
		a, err := ParseActions("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !LooksLikeActions(strings.TrimPrefix(text, "# comment\r\n")) {
			t.Errorf("%q does not look like actions", text)
		}
		seq, err := a.Sequence(1)
		if err != nil || seq.String() != "Fall1 B1" {
			t.Errorf("%q: %v, %v", text, seq, err)
		}
	}
}

func TestActionsErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                  `x: field "action" is missing`,
		"Forward(0, 1, False, True":         `x:1: field "action" is "Forward(0, 1, False, True", which is not a name`,
		"\nBackward(0)":                     `x:2: field "action" is "Backward", which is none of`,
		"Forward(0, 1)":                     `x:1: field "Forward" is "0, 1", which is not 5 arguments: n0, n1`,
		"Reverse(a, 0, True)":               `x:1: field "n1" is "a", which is not the number of a step`,
		"Reverse(1, 0, 1)":                  `x:1: field "clear_adj_deps" is "1", which is not True or False`,
		"Copy(0, StorageType.TAPE, 'RAM')":  `x:1: field "from_storage" is "StorageType.TAPE", which is none of`,
		"Reverse(1, 2, True)":               `x:1: field "n0" is "2", which is larger than n1, 1`,
		"Reverse(1, 0, True)":               `x:1: field "Reverse" is "1, 0", which begins behind step 0`,
		"Reverse(3, 0, True)":               `x:1: field "Reverse" is "3, 0", which needs the saved set of step 2, which is not there`,
		"Forward(1, 2, True, False, 'RAM')": `x:1: field "Forward" is "1, 2", which starts with step 1, whose data is not there`,
		"Forward(7, 9, True, False, 'RAM')": `x:1: field "Forward" is "7, 9", which has no step of the 3`,
		"Copy(2, StorageType.RAM, 'WORK')":  `x:1: field "Copy" is "2", which is the data of step 2, which is not there`,
		"Move(9, StorageType.RAM, 'WORK')":  `x:1: field "Move" is "9", which is no step of the 3`,
		"Reverse(4, 3, True)":               `x:1: field "Reverse" is "4, 3", which begins behind step 3, the next backward is that of step 2 of 3`,
		"Forward(0, 2, True, False, 'RAM')\nMove(0, 'RAM', 'WORK')\nForward(0, 1, False, False, 'WORK')\nForward(0, 1, False, True, 'WORK')": `x:4: field "Forward" is "0, 1", which starts with step 0, whose data is not there`,
		"Forward(0, 3, False, True, 'WORK')\nReverse(3, 2, True)\nCopy(3, 'RAM', 'WORK')":                                                    `x:3: field "Copy" is "3", which is the data of step 3, which is not there`,
		"EndReverse()\nReverse(1, 0, True)":   `x:2: field "Reverse" is "1, 0", which comes after EndReverse`,
		"Forward(0, 3, False, False, 'WORK')": "",
	} {
		a, err := ParseActions("x", []byte(text))
		if err == nil {
			_, err = a.Sequence(3)
		}
		var e *fields.FileError
		if want != "" && (!errors.As(err, &e) || !strings.HasPrefix(err.Error(), want)) || want == "" && err != nil {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzActions: whatever the text, reading ends, and a sequence holds ops of the chain only.
func FuzzActions(f *testing.F) {
	files, _ := filepath.Glob("testdata/checkpoint_schedules/*.txt")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 4)
		f.Add(data, 12)
	}
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		a, err := ParseActions("x", data)
		if err != nil {
			return
		}
		n = 1 + (n&31+32)&31
		seq, err := a.Sequence(n)
		if err != nil {
			return
		}
		for _, op := range seq {
			if op.Layer < 1 || op.Layer > n {
				t.Fatalf("%v of %d layers", op, n)
			}
		}
		var broken *schedule.RuleError
		if err := schedule.Verify(steps(n), seq); err != nil && (!errors.As(err, &broken) || broken.Index < len(seq)) {
			t.Fatalf("%v: %v", seq, err) // only what the actions leave out at the end may be missing
		}
	})
}

// parseFile parses a file of the tests.
func parseFile[T any](t testing.TB, path string, parse func(string, []byte) (T, error)) (T, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parse(path, data)
}
