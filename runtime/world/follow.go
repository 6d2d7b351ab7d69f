package world

// read is the goroutine that follows the hub.
func (w *World) read() {
	defer close(w.closed)
	for {
		m, err := decode(w.link, w.o.Longest)
		if err != nil {
			w.end(w.lost(Died), func() {})
			break
		}
		w.take(m)
	}
	w.link.close()
	if w.hub != nil {
		w.hub.running.Wait()
	}
}

// take does what a message of the hub says.
func (w *World) take(m *message) {
	switch m.Kind {
	case gathered:
		w.complete(m)
	case post:
		w.arrive(m)
	case beaten:
		w.measure(m)
	case fail:
		if m.Failure != nil {
			w.end(m.Failure, func() {})
		}
	case left:
		w.end(ErrLeft, func() {})
	default: // of a hub that knows more than this member
	}
}
