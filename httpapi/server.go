package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of a connection. A gateway on the same network needs far less of each;
// what exceeds them is an attack or an accident.
const (
	// ReadHeaderTimeout bounds a client that dribbles its header.
	ReadHeaderTimeout = 2 * time.Second
	// ReadTimeout bounds header and body together.
	ReadTimeout = 5 * time.Second
	// WriteTimeout bounds a client that does not read its answer.
	WriteTimeout = 5 * time.Second
	// ResetTimeout bounds DELETE /v1/usage/{tenant}, which looks through every key of a
	// store and cannot keep the deadline of an answer. A second is left of WriteTimeout,
	// so that whoever asked is told when it was not enough.
	ResetTimeout = WriteTimeout - time.Second
	// IdleTimeout is longer than the keep-alive of common gateways.
	IdleTimeout = 60 * time.Second
	// MaxHeaderBytes bounds all header lines together.
	MaxHeaderBytes = 16 << 10
)

// NewServer returns a server for a handler of this package with every limit
// set. It speaks HTTP/1.1, and HTTP/2 only over TLS; the caller gives it a
// listener, and a TLSConfig where there is one. What net/http has to say goes
// to log as warnings.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: ReadHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
