package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/internal/load"
)

// Where `regiond serve` has its listeners without flags.
const (
	defaultData  = "http://127.0.0.1:8080"
	defaultAdmin = "http://127.0.0.1:9090"
)

// target is a listener of a running regiond and how to reach it.
type target struct {
	addr      string
	listener  string // data or admin
	tokenFile string
	files     tlsFiles
	noProxy   bool
	timeout   time.Duration // of a call
	format    string        // of what is printed: text or json

	idempotencyKey string // of all that is sent; "" for none
}

// flags defines those that every command has that calls one listener.
func (t *target) flags(f *pflag.FlagSet, listener string) {
	addr := map[string]string{"data": defaultData, "admin": defaultAdmin}[listener]
	f.StringVar(&t.addr, "addr", addr, "`URL` of regiond's "+listener+" listener; https:// where it has a certificate")
	t.secretFlags(f, listener)
}

// calls makes of c a command that calls one listener: it has the flags for that, and one for the format of what it prints.
func calls(c *cobra.Command, listener string, run func(c *cobra.Command, t *target, words []string) error) *cobra.Command {
	t := &target{}
	t.flags(c.Flags(), listener)
	outputFlag(c, &t.format)
	c.RunE = func(c *cobra.Command, words []string) error { return run(c, t, words) }
	return c
}

// secretFlags are those of flags without the address.
func (t *target) secretFlags(f *pflag.FlagSet, listener string) {
	t.listener, t.timeout = listener, checkTimeout
	f.StringVar(&t.tokenFile, "token-file", "", "`file` with the bearer token")
	t.files.flags(f)
}

// url accepts an address with or without scheme, as curl does.
func (t *target) url(path string) string {
	addr := t.addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	return strings.TrimSuffix(addr, "/") + path
}

// do sends a request with the token. It follows no redirect: regiond sends none, and its
// target would be no regiond.
func (t *target) do(req *http.Request) (*http.Response, error) {
	req.Header.Set("X-Requested-With", "regiond") // no web page sent this
	token, config, err := t.secrets()
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true}
	if t.noProxy {
		transport.Proxy = nil
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: transport}
	res, err := c.Do(req)
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		return res, nil
	case errors.As(err, &unknown):
		return nil, fmt.Errorf("ask regiond: %w; name the authority of its certificate by --ca-file or %s", err, caFileVariable)
	case errors.Is(err, http.ErrSchemeMismatch):
		return nil, fmt.Errorf("ask regiond: %w; its listener has no certificate, so the address begins with http://", err)
	}
	return nil, fmt.Errorf("ask regiond: %w; is it running there?", err)
}

// secrets reads the files of the flags. The token is "" where none is named.
func (t *target) secrets() (token string, config *tls.Config, err error) {
	if t.tokenFile != "" {
		text, err := files.Read(t.tokenFile)
		if token = strings.TrimSpace(string(text)); err == nil && token == "" {
			err = fmt.Errorf("%s is empty; write a token into it, or leave the flag out to ask without", t.tokenFile)
		}
		if err != nil {
			return "", nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	config, err = t.files.config()
	return token, config, err
}

// exchange sends the listener a request, with JSON unless send is nil, and returns the status and the body of the answer.
func (t *target) exchange(ctx context.Context, method, path string, send []byte) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, t.url(path), bytes.NewReader(send))
	if err != nil {
		return 0, nil, fmt.Errorf("--addr: %w", err)
	}
	if send != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if t.idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", t.idempotencyKey)
	}
	res, err := t.do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(res.Body, 8<<20)); err != nil {
		return 0, nil, fmt.Errorf("read the answer: %w", err)
	}
	return res.StatusCode, bytes.TrimSpace(body), nil
}

// fetch asks the listener for JSON, into v. known reports whether v is what regiond answers.
func (t *target) fetch(ctx context.Context, method, path string, send []byte, v any, known func() bool) (body []byte, err error) {
	code, body, err := t.exchange(ctx, method, path, send)
	switch {
	case err != nil:
		return nil, err
	case code != http.StatusOK:
		return nil, t.refused(code, body)
	}
	if err := json.Unmarshal(body, v); err != nil || !known() {
		return nil, fmt.Errorf("what answers at %s is not regiond's %s listener: %.200q", t.addr, t.listener, body)
	}
	return body, nil
}

// show gets JSON from the listener, into v, and prints it as it came with format json, else by words.
func (t *target) show(c *cobra.Command, path string, v any, known func() bool, words func(w io.Writer)) error {
	return t.ask(c, http.MethodGet, path, nil, v, known, words)
}

// ask is show with another method, and JSON to send.
func (t *target) ask(c *cobra.Command, method, path string, send []byte, v any, known func() bool, words func(w io.Writer)) error {
	body, err := t.fetch(c.Context(), method, path, send, v, known)
	switch {
	case err != nil:
		return err
	case t.format == "json":
		fmt.Fprintln(c.OutOrStdout(), string(body))
	default:
		words(c.OutOrStdout())
	}
	return nil
}

// refused is the error for an answer other than 200, with the detail of its problem document.
func (t *target) refused(code int, body []byte) error {
	var p load.Answer
	if err := json.Unmarshal(body, &p); err != nil || p.Title == "" {
		hint := ""
		if code == http.StatusBadRequest && !strings.HasPrefix(t.addr, "https:") { // as net/http answers HTTP where it wants TLS
			hint = "; if it has a certificate, its address begins with https://"
		}
		return fmt.Errorf("status %d, and what answers at %s is not regiond's %s listener%s", code, t.addr, t.listener, hint)
	}
	var details []string
	for _, e := range p.Errors {
		details = append(details, strings.TrimPrefix(e.Pointer, "#/")+": "+e.Detail)
	}
	if len(details) > 0 {
		p.Detail = strings.Join(details, "; ")
	}
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		p.Detail += fmt.Sprintf("; name a file with a token for the %s listener by --token-file, or a client certificate by --cert-file", t.listener)
	}
	return fmt.Errorf("%s: %s", p.Title, p.Detail)
}

// caFileVariable is where --ca-file comes from if it is not given.
const caFileVariable = "REGIOND_CA_FILE"

// tlsFiles are the PEM files of a client.
type tlsFiles struct{ ca, cert, key string }

func (t *tlsFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "ca-file", os.Getenv(caFileVariable), "PEM `file` of the authority that signed regiond's certificate; else $"+caFileVariable+", else the system's authorities")
	f.StringVar(&t.cert, "cert-file", "", "PEM `file` of a client certificate to show")
	f.StringVar(&t.key, "key-file", "", "PEM `file` of its key")
}

func (t *tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		var err error
		if c.RootCAs, err = files.Authorities(t.ca); err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
	}
	if t.cert == "" && t.key == "" {
		return c, nil
	}
	if t.cert == "" || t.key == "" {
		return nil, errors.New("--cert-file and --key-file go together")
	}
	pair, err := files.Pair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--cert-file, --key-file: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
