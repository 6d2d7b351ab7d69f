package world

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// shortestSecret is the length of a secret in bytes: whoever connects can guess at it without being seen.
const shortestSecret = 16

// guard refuses a world that anybody could join. Errors: ErrSecret.
func (o *Options) guard() error {
	host, _, err := net.SplitHostPort(o.Address)
	switch {
	case err != nil:
		return err
	case o.Certificate != "" || o.Key != "" || o.CA != "":
		if o.Certificate == "" || o.Key == "" || o.CA == "" {
			return errors.New("TLS takes a certificate, its key and the authority's certificate: give all three")
		}
		return nil
	case len(o.Secret) == 0 && !IsLoopback(host):
		return fmt.Errorf("%w: rank 0 is at %s, and processes on several machines need a secret: set PLIMSOLL_SECRET to the same %d characters or more everywhere", ErrSecret, o.Address, shortestSecret)
	case len(o.Secret) > 0 && len(o.Secret) < shortestSecret:
		return fmt.Errorf("%w: it has %d characters, give %d or more that nobody guesses", ErrSecret, len(o.Secret), shortestSecret)
	}
	return nil
}

// IsLoopback reports whether a host is this machine, by an address that no other one reaches.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// tls returns the settings of both ends of a control connection: mutual, with the files that are given, or with a key that follows
// from the secret, which proves that the other end has it.
func (o *Options) tls() (*tls.Config, error) {
	if o.Certificate == "" {
		return ofSecret(o.Secret)
	}
	own, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", o.CA)
	}
	host, _, _ := net.SplitHostPort(o.Address)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: pool, RootCAs: pool, ServerName: host,
	}, nil
}

func ofSecret(secret []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "plimsoll world 1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	own := key.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(nil, form, form, own, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, // names mean nothing: the key is what is verified
		VerifyConnection: func(c tls.ConnectionState) error {
			if its, ok := c.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !bytes.Equal(its, own) {
				return ErrSecret
			}
			return nil
		},
	}, nil
}
