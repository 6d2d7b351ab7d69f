package chain

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
)

const contending = `{"format":"plimsoll.chain/v1","name":"c","copies_beside":[1.5,2],"host_updates_beside":[1,2,3],` +
	`"copies_beside_host_updates":[1,4],"ops_beside_host_updates":1.25,"host_updates_beside_ops":3,"input_bytes":1,"layers":[` +
	`{"name":"a","forward_s":1,"backward_s":3,"output_bytes":1,"forward_beside":[1,1.25,2],"backward_beside":[3,1,1]},` +
	`{"name":"b","forward_s":3,"backward_s":1,"output_bytes":1,"backward_beside":[1,1,5]},{"name":"loss","forward_s":0,"backward_s":0,"output_bytes":1}]}`

// The fields of contention survive rewriting; without them nothing contends.
func TestContentionInFiles(t *testing.T) {
	t.Parallel()
	c, err := decode(contending)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Contends() || *c.CopiesBeside != (CopiesBeside{1.5, 2}) || *c.Layers[0].ForwardBeside != (Beside{1, 1.25, 2}) || c.Layers[1].ForwardBeside != nil ||
		*c.HostUpdatesBeside != (Beside{1, 2, 3}) || *c.CopiesBesideHostUpdates != (CopiesBeside{1, 4}) || *c.OpsBesideHostUpdates != 1.25 || *c.HostUpdatesBesideOps != 3 {
		t.Errorf("read %+v", c)
	}
	line, err := json.Marshal(*c)
	if err != nil || !strings.Contains(string(line), `"copies_beside":[1.5,2]`) {
		t.Errorf("written %s, %v", line, err)
	}
	if again, err := decode(string(line)); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("read again %+v, %v", again, err)
	}
	plain, err := decode(contending)
	if err != nil {
		t.Fatal(err)
	}
	if plain.ForgetContention(); plain.Contends() {
		t.Error("contention is not forgotten")
	}
	if plain.CopyContention(c); !reflect.DeepEqual(plain, c) {
		t.Errorf("copied %+v", plain)
	}
}

// Factors are numbers from 1 to a million, two of copies and three of ops.
func TestBadContentionIsNamed(t *testing.T) {
	t.Parallel()
	for _, k := range []struct{ good, bad, want string }{
		{`"host_updates_beside":[1,2,3]`, `"host_updates_beside":[1.5,2]`, `field "host_updates_beside" is [1.5,2], which is not 3 numbers`},
		{`"copies_beside_host_updates":[1,4]`, `"copies_beside_host_updates":[1,0]`, `field "copies_beside_host_updates" is 0, which is not from 1 to 1e6`},
		{`"ops_beside_host_updates":1.25`, `"ops_beside_host_updates":0.5`, `field "ops_beside_host_updates" is 0.5, which is not from 1 to 1e6`},
		{`"host_updates_beside_ops":3`, `"host_updates_beside_ops":1e7`, `field "host_updates_beside_ops" is 1e+07, which is not from 1 to 1e6`},
		{`"copies_beside":[1.5,2]`, `"copies_beside":[1.5]`, `field "copies_beside" is [1.5], which is not 2 numbers`},
		{`"copies_beside":[1.5,2]`, `"copies_beside":[0.5,2]`, `field "copies_beside" is 0.5, which is not from 1 to 1e6`},
		{`"copies_beside":[1.5,2]`, `"copies_beside":[1,"2"]`, `field "copies_beside" is [1,"2"], which is not 2 numbers`},
		{`"forward_beside":[1,1.25,2]`, `"forward_beside":[1,2]`, `layer 1 (a): field "forward_beside" is [1,2], which is not 3 numbers`},
		{`"forward_beside":[1,1.25,2]`, `"forward_beside":[1,2,1e7]`, `layer 1 (a): field "forward_beside" is 1e+07, which`},
		{`"backward_beside":[1,1,5]`, `"backward_beside":7`, `layer 2 (b): field "backward_beside" is 7, which`},
	} {
		doc := strings.Replace(contending, k.good, k.bad, 1)
		if _, err := decode(doc); err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: %v, want %q", k.bad, err, k.want)
		}
	}
	c := &Chain{Layers: []Layer{{ForwardBeside: &Beside{1, math.NaN(), 1}}}}
	if err := c.Validate(); err == nil {
		t.Error("NaN was taken")
	}
}

// A group is slower by the mean of its members by time; one that takes no time is not.
func TestContentionOfGroups(t *testing.T) {
	t.Parallel()
	c, err := decode(contending)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Group(c, []int{2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if l := g.Layers[0]; *l.ForwardBeside != (Beside{1, (1.25 + 3) / 4, (2. + 3) / 4}) || *l.BackwardBeside != (Beside{(9. + 1) / 4, 1, (3. + 5) / 4}) {
		t.Errorf("forward %v, backward %v", *l.ForwardBeside, *l.BackwardBeside)
	}
	if all := *c.Beside(); all != (Beside{(4 + 9 + 1) / 8., (4.25 + 4) / 8, (5 + 3 + 5.) / 8}) {
		t.Errorf("all ops: %v", all)
	}
	if *g.CopiesBeside != *c.CopiesBeside || g.Layers[1].ForwardBeside != nil {
		t.Errorf("%+v", g)
	}
	c.Layers[0].ForwardS, c.Layers[1].ForwardS = 0, 0
	if g, err = Group(c, []int{2, 3}); err != nil || *g.Layers[0].ForwardBeside != (Beside{1, 1, 1}) {
		t.Errorf("of no time: %+v, %v", g, err)
	}
}
