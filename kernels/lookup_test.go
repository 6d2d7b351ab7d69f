package kernels

import (
	"errors"
	"testing"

	"plimsoll/runtime"
)

func TestBadLookupsAreRefused(t *testing.T) {
	t.Parallel()
	good := Lookup{Elements: 12, Channels: 3}
	o := LookupOperands{
		X: runtime.Span{Bytes: 12}, Table: runtime.Span{Offset: 64, Bytes: good.TableBytes()},
		Y: runtime.Span{Offset: 64 + good.TableBytes(), Bytes: 48},
	}
	if err := o.Check(good); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Lookup, *LookupOperands){
		"Elements":  func(l *Lookup, _ *LookupOperands) { l.Elements = 0 },
		"Channels":  func(l *Lookup, _ *LookupOperands) { l.Channels = 5 },
		"X[0]":      func(_ *Lookup, o *LookupOperands) { o.X.Bytes-- },
		"Params[0]": func(_ *Lookup, o *LookupOperands) { o.Table.Bytes-- },
		"Y":         func(_ *Lookup, o *LookupOperands) { o.Y.Offset = o.Table.End() - Alignment },
	} {
		l, bound := good, o
		change(&l, &bound)
		var bad *OpError
		if err := bound.Check(l); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: error %v", field, err)
		}
	}
}
