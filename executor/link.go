package executor

import (
	"encoding/json"
	"fmt"
	"maps"

	"plimsoll/planner/chain"
	"plimsoll/planner/schedule"
)

// LinkField is the chain file's extra field with the measured link, a LinkProfile.
const LinkField = "link"

// LinkProfile is the link between device and host memory, as measured: bytes per second of each direction, alone and
// while the other one copies too. In a chain file it stands beside bandwidth_bytes_per_s, the slower direction alone.
type LinkProfile struct {
	ToHost           float64 `json:"to_host_bytes_per_s"`
	ToDevice         float64 `json:"to_device_bytes_per_s"`
	ToHostTogether   float64 `json:"to_host_together_bytes_per_s"`
	ToDeviceTogether float64 `json:"to_device_together_bytes_per_s"`
	// Slowdown is the time of a sequence, of store-all's where that has room, while both directions copy without pause,
	// divided by its time without copies.
	Slowdown float64 `json:"compute_slowdown"`
	// Duplex lets plans use both directions at once.
	Duplex bool `json:"duplex"`
}

// LinkOf returns the link that plans of a chain may use: its bandwidth, duplex when its profile says so.
func LinkOf(c *chain.Chain) schedule.Link {
	var p LinkProfile
	if json.Unmarshal(c.Extra[LinkField], &p) != nil {
		p = LinkProfile{}
	}
	return schedule.Link{Bandwidth: c.Bandwidth, Duplex: p.Duplex}
}

// duplexGain is how many times the bytes of one direction alone both together must move for a link to count as duplex.
const duplexGain = 1.5

// MeasuredLink returns the link of a chain as it was measured. The link is duplex if both directions together are at least 1.5
// times as fast as one. Otherwise, or without a measurement, it is LinkOf.
func MeasuredLink(c *chain.Chain) schedule.Link {
	if together := togetherOf(c); together > 0 && 2*together >= duplexGain*c.Bandwidth {
		return DuplexLink(c)
	}
	return LinkOf(c)
}

// DuplexLink returns the link of a chain for both directions at once, at the rate of the slower one then, as far as that was measured.
func DuplexLink(c *chain.Chain) schedule.Link {
	link := LinkOf(c)
	if together := togetherOf(c); together > 0 && !link.Duplex {
		link.Bandwidth = min(link.Bandwidth, together)
	}
	link.Duplex = true
	return link
}

// togetherOf returns bytes per second of the slower direction of a chain's link while the other one copies, too; 0 where that is not
// known.
func togetherOf(c *chain.Chain) float64 {
	var p LinkProfile
	if json.Unmarshal(c.Extra[LinkField], &p) != nil {
		return 0
	}
	return min(p.ToHostTogether, p.ToDeviceTogether)
}

// ContentionOf returns the seconds that computation loses for each second of a transfer, as measured: with copies in both
// directions a step took Slowdown times as long. It returns 0 if that was not measured, or if the chain lets simulations slow ops
// beside copies.
func ContentionOf(c *chain.Chain) float64 {
	var p LinkProfile
	if c.Contends() || json.Unmarshal(c.Extra[LinkField], &p) != nil || !(p.Slowdown > 1) {
		return 0
	}
	return (1 - 1/p.Slowdown) / 2
}

// WithLink returns the chain with another link.
func WithLink(c *chain.Chain, link schedule.Link) (*chain.Chain, error) {
	out := *c
	out.Bandwidth, out.Extra = link.Bandwidth, maps.Clone(c.Extra)
	if out.Extra == nil {
		out.Extra = map[string]json.RawMessage{}
	}
	// Fields of a profile that this program does not know stay.
	fields := map[string]json.RawMessage{}
	if raw, ok := c.Extra[LinkField]; ok {
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, fmt.Errorf("field %q: %w", LinkField, err)
		}
	}
	fields["duplex"] = fmt.Append(nil, link.Duplex)
	raw, err := json.Marshal(fields)
	out.Extra[LinkField] = raw
	return &out, err
}
