package pipeline

import "plimsoll/internal/fields"

// Portal takes skips from the stage that makes them straight to the stage that reads them, past the stages between, and
// their gradients back. Source: Kim et al. 2020, torchgpipe, section 3.3. Without a portal the skips travel in the
// activations of all boundaries between.
type Portal struct {
	From, To int   // stages; at least one lies between
	Bytes    int64 // of the skips, and of their gradients
}

func (p Portal) list() fields.List {
	return fields.List{{Name: "from_stage", Value: p.From}, {Name: "to_stage", Value: p.To}, {Name: "bytes", Value: p.Bytes}}
}

func takePortal(o *fields.Object) (p Portal, err error) {
	o.Require("from_stage", "to_stage", "bytes")
	p.From, p.To, p.Bytes = int(o.Size("from_stage", 0)), int(o.Size("to_stage", 0)), o.Size("bytes", 0)
	return p, o.Err()
}
