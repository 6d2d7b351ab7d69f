package partition

import (
	"math"

	"plimsoll/planner/chain"
	"plimsoll/planner/pipeline"
	"plimsoll/planner/profiles"
)

// mostStates bounds the states of a graph that are looked at; the time is that of solvePipeDream.
const mostStates = 2000

// PipeDreamChain linearizes an operator graph for pipedream on a platform. A boundary comes wherever PipeDream's optimizer, which
// knows the graph, ends a stage. So operators that run in parallel, or beside a skip connection, need not form one layer. If memory
// has room, pipedream on this chain is never slower than the optimizer on the graph. For less memory it looks at this chain's
// boundaries only. A graph of more than 2,000 states gets Graph.Chain. Errors: those of Graph.Chain and of platforms.
func PipeDreamChain(g *profiles.Graph, p *pipeline.Platform) (*chain.Chain, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	states := g.States(mostStates)
	if len(states) == 0 {
		return g.Chain()
	}
	h := graphHierarchy(states)
	h.levels = levels(p)
	if math.IsInf(h.solve(), 1) {
		return g.Chain()
	}
	return g.ChainOf(h.path(states))
}

// graphHierarchy is the optimizer's view of a graph. Later states get the outputs that their operators read. The authors' program counts
// the output that two branches read until they meet, also where both have read it.
func graphHierarchy(states []*profiles.State) *hierarchy {
	h := &hierarchy{transfers: true, memory: math.Inf(1)}
	for _, s := range states {
		h.compute, h.activations = append(h.compute, s.Compute), append(h.activations, float64(s.Activation))
		h.parameters, h.output = append(h.parameters, float64(s.Weights)), append(h.output, float64(s.Output))
	}
	before := make([][]bool, len(states))
	for j, s := range states {
		for _, t := range states[:j] {
			before[j] = append(before[j], t.Within(s))
		}
	}
	h.precedes = func(k, j int) bool { return before[j][k] }
	return h
}

// path returns the states with which the stages end, each within the next. Inside a component of an outer level the optimizer does
// not ask whether a state is behind the component's first: such a one is left out.
func (h *hierarchy) path(states []*profiles.State) (path []*profiles.State) {
	next := len(states) - 1
	stages := h.stages()
	for i := len(stages) - 1; i >= 0; i-- {
		if at := stages[i].Last - 1; at == next || h.before(at, next) {
			path, next = append([]*profiles.State{states[at]}, path...), at
		}
	}
	return path
}
