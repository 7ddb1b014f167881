// Package files reads files that an operator names.
package files

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// maxBytes bounds what is read of a file: a device such as /dev/zero has no end.
	maxBytes = 16 << 20
	// readTimeout bounds the wait for what another program writes into a pipe.
	readTimeout = 5 * time.Second
)

// Read is os.ReadFile for files that an operator names, and ends also where that would wait or read on. Errors are a FIFO
// without content, a FIFO whose writer takes longer than 5 s, a device that has no end, and any file of more than 16 MiB.
func Read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // only pipes have one
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(content) > maxBytes {
		err = fmt.Errorf("read %s: it has more than %d bytes", name, maxBytes)
	}
	if err == nil && len(content) == 0 {
		if info, _ := f.Stat(); info != nil && info.Mode()&os.ModeNamedPipe != 0 {
			err = fmt.Errorf("read %s: it is a FIFO, and nothing was written into it", name)
		}
	}
	return content, err
}

// Pair is tls.LoadX509KeyPair.
func Pair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := Read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := Read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		err = fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return pair, err
}

// Authorities reads the certificates of a PEM file.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}
