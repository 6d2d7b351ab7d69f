package world

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"syscall"
)

const (
	keyBytes = 32
	// shortestSecret keeps out what can be guessed from the public key that is made of it.
	shortestSecret = 16
)

var (
	// ErrSecret says that a secret or a certificate cannot be used, or that there is none where one is needed.
	ErrSecret = errors.New("secret")

	errOtherSecret = errors.New("it has another secret")
	errSilent      = errors.New("it said nothing")
	errGaveWay     = errors.New("it gave way to others before it had said who it is")
)

// guard makes connections of members of this world alone. Everything is behind TLS 1.3 in which both sides prove that they have the
// same key, derived from the secret, or certificates of the same authority. Without either, the key is that of the empty secret, which
// everybody has, and only this machine is reached.
type guard struct {
	secret         []byte
	open           bool // beyond this machine
	server, client *tls.Config
}

func newGuard(o *Options) (*guard, error) {
	g := &guard{secret: o.Secret, open: len(o.Secret) > 0 || o.Certificate != ""}
	if len(o.Secret) > 0 && len(o.Secret) < shortestSecret {
		return nil, fmt.Errorf("%w: it has %d bytes: make one of %d or more, as with: openssl rand -hex 32", ErrSecret, len(o.Secret), shortestSecret)
	}
	configure := g.derive
	if o.Certificate != "" || o.Key != "" || o.CA != "" {
		configure = func() error { return g.load(o) }
	}
	if err := configure(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	return g, nil
}

// Exposure says who can join a world without a secret; "" where only processes that have the secret can, or nobody else is needed.
func (o *Options) Exposure() string {
	switch {
	case o.Size < 2 || len(o.Secret) > 0:
		return ""
	case o.Certificate != "":
		return fmt.Sprintf("every process that has a certificate of %s and reaches %s can join", o.CA, o.Address)
	}
	return fmt.Sprintf("every user of this machine, and every container that shares its network, can join at %s", o.Address)
}

// derive makes both sides' configuration from the secret.
func (g *guard) derive() error {
	key := ed25519.NewKeyFromSeed(derived(g.secret, "key of a world's processes"))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert, InsecureSkipVerify: true, // the key itself is checked:
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !key.Public().(ed25519.PublicKey).Equal(s.PeerCertificates[0].PublicKey) {
				return errOtherSecret
			}
			return nil
		},
	}
	g.server, g.client = config, config
	return nil
}

// load makes both sides' configuration from files.
func (g *guard) load(o *Options) error {
	if o.Certificate == "" || o.Key == "" || o.CA == "" {
		return errors.New("a certificate, its key and the authority's certificate are given together")
	}
	pair, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", o.Certificate, o.Key, err)
	}
	text, err := os.ReadFile(o.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: no certificate in PEM in it", o.CA)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, Certificates: []tls.Certificate{pair},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil && o.Size > 1 {
		return err
	}
	g.server, g.client = config, config.Clone()
	g.client.ServerName = host
	return nil
}

// derived returns a key for one purpose.
func derived(key []byte, purpose string) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, "plimsoll "+purpose, keyBytes)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return out
}

// proof shows over a connection that its sender has the secret, also where certificates made the connection.
func (g *guard) proof(conn net.Conn) []byte {
	t, ok := conn.(*tls.Conn)
	if !ok { // between rank 0 and itself
		return nil
	}
	state := t.ConnectionState()
	bound, err := state.ExportKeyingMaterial("EXPORTER-plimsoll-world", nil, keyBytes)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	mac := hmac.New(sha256.New, derived(g.secret, "proof of a secret"))
	mac.Write(bound)
	return mac.Sum(nil)
}

func (g *guard) proves(conn net.Conn, proof []byte) bool { return hmac.Equal(proof, g.proof(conn)) }

// allow is asked before a socket is bound or connected.
func (g *guard) allow(_, address string, _ syscall.RawConn) error {
	if g.open || loopback(address) {
		return nil
	}
	return fmt.Errorf("%w: without one only processes of one machine may meet, and %s is beyond it: set PLIMSOLL_SECRET", ErrSecret, address)
}

// loopback reports whether an address, IP:port, is of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// listen listens at a port; on every interface, but where the host is loopback's or nobody else may come.
func (g *guard) listen(ctx context.Context, host, port string) (net.Listener, error) {
	if ip := net.ParseIP(host); g.open && (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		host = ""
	}
	config := net.ListenConfig{Control: g.allow}
	return config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
}

func (g *guard) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Control: g.allow}
	return dialer.DialContext(ctx, "tcp", address)
}

func listenAt(ctx context.Context, g *guard, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return g.listen(ctx, host, port)
}

func dialAt(ctx context.Context, g *guard, address string) (net.Conn, error) {
	return g.dial(ctx, address)
}

// rejected reports whether the other side of a handshake has ended it: it did not accept who we are.
func rejected(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "remote error" // of crypto/tls, which has no type for it
}
