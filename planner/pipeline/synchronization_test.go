package pipeline

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// Messages between replicas survive a file, and bad ones are refused by position, field and value.
func TestSynchronizationInFiles(t *testing.T) {
	t.Parallel()
	p := &Plan{Chain: "c", Strategy: "s", Period: 1, Stages: []Stage{{First: 1, Last: 2, Devices: []int{0, 1}}}, Tasks: []Task{{Kind: F}}}
	p.Synchronization = []Synchronization{
		{Kind: Reduce, First: 1, Last: 2, To: 1, Start: 0.25, Shift: -1},
		{Kind: Gather, First: 1, Last: 2, From: 1, Start: 0.5, Shift: -1},
	}
	var b bytes.Buffer
	if err := p.Encode(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	read, err := Decode(strings.NewReader(text))
	if err != nil || !reflect.DeepEqual(read.Synchronization, p.Synchronization) {
		t.Fatalf("read %v, %v from\n%s", read, err, text)
	}
	for _, bad := range [][3]string{
		{`"gather"`, `"scatter"`, `synchronization 1: field "kind" is "scatter", which is neither reduce nor gather`},
		{`"from":1`, `"from":-1`, `synchronization 1: field "from" is -1`},
		{`"to":1`, `"two":1`, `synchronization 0: field "to" is missing`},
	} {
		if _, err := Decode(strings.NewReader(strings.Replace(text, bad[0], bad[1], 1))); err == nil || !strings.Contains(err.Error(), bad[2]) {
			t.Errorf("%s: %v, want %q", bad[1], err, bad[2])
		}
	}
}
