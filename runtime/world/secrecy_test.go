package world

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"plimsoll/internal/freeport/freeporttest"
)

// authority signs certificates of processes.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign(&x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, "ca")
	return a
}

// sign makes a key and its certificate, in name.pem and name.key.
func (a *authority) sign(template *x509.Certificate, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", private)
	return cert, key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// process signs a certificate for a process at a name or address.
func (a *authority) process(name string, ips ...net.IP) {
	a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, IPAddresses: ips, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, name)
}

func (a *authority) use(o *Options, name string) {
	o.Certificate, o.Key, o.CA = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key"), filepath.Join(a.dir, "ca.pem")
}

// Certificates of one authority make a world; those of another, of another host, or beside another secret do not.
func TestCertificates(t *testing.T) {
	t.Parallel()
	loop := net.IPv4(127, 0, 0, 1)
	a, other := newAuthority(t), newAuthority(t)
	a.process("rank", loop)
	a.process("elsewhere", net.IPv4(10, 0, 0, 1))
	other.process("rank", loop)
	each(together(t, 2, func(o *Options) { a.use(o, "rank") }), func(w *World) {
		if _, err := w.AllGather(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		name   string
		change func(o *Options)
		says   string // by rank 1
	}{
		{"another authority", func(o *Options) {
			if a.use(o, "rank"); o.Rank == 1 {
				other.use(o, "rank")
			}
		}, "do not accept each other's certificates"},
		{"the authority's, but not ours", func(o *Options) {
			if a.use(o, "rank"); o.Rank == 1 {
				o.Certificate, o.Key = filepath.Join(other.dir, "rank.pem"), filepath.Join(other.dir, "rank.key")
			}
		}, "do not accept each other's certificates"},
		{"another host", func(o *Options) { a.use(o, "elsewhere") }, "certificate is valid for 10.0.0.1, not 127.0.0.1"},
		{"another secret", func(o *Options) {
			a.use(o, "rank")
			o.Secret = fmt.Append(nil, secret, o.Rank)
		}, "another secret"},
		{"none on one side", func(o *Options) {
			if o.Rank == 0 {
				a.use(o, "rank")
			}
		}, "secret"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		o := Options{Identity: Identity{Rank: 0, Size: 2, Address: freeporttest.Address(t)}}
		one := o
		one.Rank = 1
		c.change(&o)
		c.change(&one)
		alone := make(chan error)
		go func() {
			_, err := Join(ctx, o)
			alone <- err
		}()
		_, err := Join(t.Context(), one)
		cancel()
		if e := <-alone; !errors.Is(e, context.Canceled) || !is[*RefusalError](err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; %v", c.name, e, err)
		}
	}
	for says, change := range map[string]func(o *Options){
		"given together": func(o *Options) { o.CA = "" },
		"none.pem":       func(o *Options) { o.CA = filepath.Join(a.dir, "none.pem") },
		"no certificate": func(o *Options) { o.CA = filepath.Join(a.dir, "ca.key") },
		"rank.key":       func(o *Options) { o.Certificate = filepath.Join(a.dir, "rank.key") },
	} {
		o := Options{Identity: Identity{Size: 2, Address: "127.0.0.1:1"}}
		a.use(&o, "rank")
		change(&o)
		if _, err := Join(t.Context(), o); !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// Without a secret nothing beyond this machine is listened at or dialled; a short one is refused.
func TestWithoutASecretOnlyLoopback(t *testing.T) {
	t.Parallel()
	for _, rank := range []int{0, 1} {
		for _, address := range []string{"0.0.0.0:29400", "192.0.2.1:29400", "[2001:db8::1]:29400"} {
			_, err := Join(t.Context(), Options{Identity: Identity{Rank: rank, Size: 2, Address: address}})
			if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), "PLIMSOLL_SECRET") {
				t.Errorf("rank %d at %s: %v", rank, address, err)
			}
		}
		_, err := Join(t.Context(), Options{Identity: Identity{Rank: rank, Size: 2, Address: "127.0.0.1:1"}, Secret: []byte("pa55word")})
		if !errors.Is(err, ErrSecret) || strings.Contains(err.Error(), "pa55word") {
			t.Errorf("a short secret: %v", err)
		}
	}
}

// When a listener at rank 0's port is not rank 0, both sides report it.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example ready\r\n"))
		}
	}()
	for rank, says := range []string{"is in use by another program", "is no rank 0"} {
		_, err := Join(t.Context(), Options{Identity: Identity{Rank: rank, Size: 2, Address: l.Addr().String()}, Secret: []byte(secret)})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Strangers who say nothing, or anything, neither join nor hold up who belongs here; no goroutine is left of them.
func TestStrangers(t *testing.T) {
	// Serial: it counts goroutines.
	before := runtime.NumGoroutine()
	address := freeporttest.Address(t)
	o := Options{Identity: Identity{Rank: 0, Size: 2, Address: address}, Secret: []byte(secret)}
	done := make(chan *World)
	go func() {
		w, err := Join(t.Context(), o)
		if err != nil {
			t.Error(err)
		}
		done <- w
	}()
	for i := range 300 {
		var conn net.Conn
		for conn == nil { // until rank 0 listens
			conn, _ = net.Dial("tcp", address)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", i%3)))
	}
	one := o
	one.Rank = 1
	w, err := Join(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	each([]*World{<-done, w}, func(w *World) {
		if err := w.Leave(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for runtime.NumGoroutine() > before { // or the test's own time is over
		runtime.Gosched()
	}
}
