package executor

import (
	"runtime"
	"sync"

	"plimsoll/models"
)

// Initial remembers initial weights: drawing them takes longer than many a training step, and a comparison starts one
// model many times. It is safe for use by several goroutines, and holds as much memory as the weights do.
type Initial struct {
	mu     sync.Mutex
	values map[start][]float32
}

// start is what initial values depend on.
type start struct {
	name string
	seed uint64
}

// draw remembers the values of parameters, which all processors draw; a nil Initial remembers none.
func (i *Initial) draw(all []models.Parameter, seed uint64) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.values == nil {
		i.values = map[start][]float32{}
	}
	var wait sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, p := range all {
		at := start{p.Name, seed}
		if i.values[at] != nil {
			continue
		}
		values := make([]float32, p.Desc.Elements())
		i.values[at] = values
		free <- struct{}{}
		wait.Go(func() {
			models.Init(p, seed, values)
			<-free
		})
	}
	wait.Wait()
}

// fill is models.Init, from memory where that has the values; a nil Initial has none.
func (i *Initial) fill(p models.Parameter, seed uint64, dst []float32) {
	if i == nil {
		models.Init(p, seed, dst)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at := start{p.Name, seed}
	values, ok := i.values[at]
	if !ok {
		values = make([]float32, len(dst))
		models.Init(p, seed, values)
		if i.values == nil {
			i.values = map[start][]float32{}
		}
		i.values[at] = values
	}
	copy(dst, values)
}
