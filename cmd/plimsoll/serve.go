package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the server of metrics: what clients do must not take from the run.
const (
	mostClients = 16
	patience    = 10 * time.Second // for a request, and for its answer to be taken
)

// listen checks the address of --metrics and takes it, for so many clients at a time; "" is none.
func listen(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, usage(fmt.Errorf("--metrics %s: give an address and a port, as in 127.0.0.1:9090: %w", address, err))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usage(fmt.Errorf("--metrics: %w: give another address or port, as in 127.0.0.1:0", err))
	}
	return &limited{l, make(chan struct{}, mostClients)}, nil
}

// limited is a listener that hangs up on clients for whom there is no room.
type limited struct {
	net.Listener
	room chan struct{}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &client{Conn: c, left: sync.OnceFunc(func() { <-l.room })}, nil
		default:
			_ = c.Close() // of somebody else's
		}
	}
}

// client is a connection that there was room for.
type client struct {
	net.Conn
	left func()
}

// Close implements net.Conn.
func (c *client) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// everywhere reports whether an address is that of every interface of the machine.
func everywhere(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsUnspecified()
}

// noteMetrics says where the metrics are.
func noteMetrics(a *app, at net.Addr) {
	a.note("metrics at http://%s/metrics", at)
	if everywhere(at) {
		a.note("whoever reaches this machine, on any of its interfaces, can read them: --metrics 127.0.0.1:%d is for this machine alone", at.(*net.TCPAddr).Port)
	}
}

// serve answers under /metrics until stop is called. Clients that are slower than their time are hung up on.
func (m *metrics) serve(l net.Listener, patience time.Duration) (stop func()) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	server := &http.Server{
		Handler: mux, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it ends with Close; metrics that cannot be served are no reason to end a run
	}()
	return func() {
		_ = server.Close() // of a listener that is given up
		<-done
	}
}
