package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plimsoll/internal/freeport/freeporttest"
)

// Thousands of clients that connect and say nothing take no more descriptors of a run than there is room for, and metrics are
// served again when they have gone. The notes say which interfaces can read them.
func TestManyClientsTakeLittle(t *testing.T) {
	t.Parallel()
	const clients = 300
	address := freeporttest.Address(t)
	_, port, _ := net.SplitHostPort(address)
	out := filepath.Join(t.TempDir(), "run")
	args := slices.DeleteFunc(small(t, 1_000_000, "--lr-schedule", "constant", "--warmup", "0"), func(s string) bool { return s == "-q" })
	p := program(t, nil, append(args, "--out", out, "--metrics", ":"+port)...)
	says := p.toFile()
	p.start()
	p.until(out, 2)
	p.says(says, "on any of its interfaces")
	var open []net.Conn
	for range clients {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	hungUp := map[net.Conn]bool{}
	for len(hungUp) < clients-mostClients {
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond)) // what is closed is seen whenever one looks
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				hungUp[c] = true
			}
		}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process.Pid)); err == nil && len(fds) > 3*mostClients {
		t.Errorf("the run has %d descriptors", len(fds))
	}
	for _, c := range open {
		_ = c.Close() // some are closed
	}
	for { // until the last of them is gone
		res, err := http.Get("http://127.0.0.1:" + port + "/metrics")
		if err == nil && res.StatusCode == http.StatusOK {
			_ = res.Body.Close() // of what was not read
			break
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wantSaved(t, p, out)
}

// Clients that send no request, half of one, or do not take the answer are hung up on.
func TestSlowClientsAreHungUpOn(t *testing.T) {
	t.Parallel()
	l, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &metrics{registry: prometheus.NewRegistry()}
	for i := range 20_000 { // more than sockets buffer
		m.gauge(fmt.Sprint("gauge_", i), strings.Repeat("a long text ", 20))
	}
	ended := make(chan struct{}, 1)
	defer m.serve(&telling{l, ended}, 20*time.Millisecond)()
	for _, request := range []string{"", "GET /metrics HTTP/1.1\r\nHost:", "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		<-ended
		answer, _ := io.ReadAll(c) // what has arrived, whether or not it was cut off
		if bytes.Contains(answer, []byte("gauge_19999 ")) {
			t.Errorf("%q was answered whole", request)
		}
		_ = c.Close() // of a connection that has ended
	}
}

// telling tells when the server has closed a connection.
type telling struct {
	net.Listener
	ended chan struct{}
}

type tellingConn struct {
	net.Conn
	ended func()
}

func (l *telling) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &tellingConn{c, sync.OnceFunc(func() { l.ended <- struct{}{} })}, err
}

func (c *tellingConn) Close() error {
	defer c.ended()
	return c.Conn.Close()
}

// Only an address without a host, or with that of every interface, is open to all.
func TestEverywhere(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{":0": true, "0.0.0.0:0": true, "[::]:0": true, "127.0.0.1:0": false, "localhost:0": false} {
		l, err := listen(address)
		if err != nil {
			t.Logf("%s: %v", address, err) // without IPv6
			continue
		}
		if everywhere(l.Addr()) != want {
			t.Errorf("%s: %v", address, !want)
		}
		_ = l.Close() // of a listener that nobody used
	}
}
