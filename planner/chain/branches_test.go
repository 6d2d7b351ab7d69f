package chain

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const joined = `{"format":"plimsoll.chain/v1","name":"pair","input_bytes":5,"branches":%s,"layers":[
 {"name":"a","forward_s":1,"backward_s":2,"output_bytes":3},
 {"name":"b","forward_s":1,"backward_s":2,"output_bytes":3},
 {"name":"loss","forward_s":1,"backward_s":2,"output_bytes":3}]}`

// Branches are written as they are read; those that no model has are refused by name.
func TestBranchesInFiles(t *testing.T) {
	t.Parallel()
	c, err := Decode(strings.NewReader(fmt.Sprintf(joined, "[1,1]")))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := c.Encode(&text); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(&text)
	if err != nil || !slices.Equal(again.Branches, []int{1, 1}) || again.Extra != nil || again.AllInputBytes() != 10 {
		t.Errorf("%+v, %v", again, err)
	}
	for branches, says := range map[string]string{
		"3": "not an array", `["x"]`: "not a number of layers", "[1.5]": "not a number of layers", "[0,1]": "without layers", "[-1,1]": "without layers",
		"[3]": "none of the 3 layers", "[1,2]": "none of the 3 layers", "[9223372036854775807,9223372036854775807]": "none of the 3 layers",
		"[1,1,1,1,1,1,1,1,1]": "more than 8 branches",
	} {
		_, err := Decode(strings.NewReader(fmt.Sprintf(joined, branches)))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `"branches"`) {
			t.Errorf("%s: %v, want %q", branches, err, says)
		}
	}
	if c, err := Decode(strings.NewReader(fmt.Sprintf(joined, "[]"))); err != nil || c.Wiring().Joins() {
		t.Errorf("no branches: %v", err)
	}
	if _, err := Group(c, []int{1, 3}); !errors.Is(err, ErrGroups) {
		t.Errorf("groups of branches: %v", err)
	}
}

func ExampleWiring() {
	w := NewWiring([]int{2, 3}, 7)
	for l := 1; l <= 7; l++ {
		fmt.Print(w.Reads(l), w.Begins(l), " ")
	}
	fmt.Println(NewWiring(nil, 7).Reads(3))
	// Output: [0] true [1] false [8] true [3] false [4] false [2 5] false [6] false [2]
}
