package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Change is what cutting or healing a region did.
type Change struct {
	Region  string   `json:"region"`
	Off     bool     `json:"off"`     // whether it is cut off now
	Changed bool     `json:"changed"` // false: it was so already
	Cut     []string `json:"cut"`     // all that are cut off now
	Regions []string `json:"regions"` // all of the demo
}

// refusal is the body of every answer but 200.
type refusal struct {
	Detail string `json:"detail"`
}

// NewControl answers POST /cut/{region} and /heal/{region}. A page in a browser
// cannot call it from another origin.
func NewControl(c *Cuts) http.Handler {
	mux := http.NewServeMux()
	for verb, off := range verbs() {
		mux.HandleFunc("POST /"+verb+"/{region}", func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("region")
			changed, err := c.Set(name, off)
			if err != nil {
				reply(w, http.StatusNotFound, refusal{err.Error()})
				return
			}
			reply(w, http.StatusOK, Change{Region: name, Off: off, Changed: changed, Cut: c.Off(), Regions: c.regions})
		})
	}
	return http.NewCrossOriginProtection().Handler(mux)
}

// verbs says what each word makes of a region: whether it is cut off afterwards.
func verbs() map[string]bool { return map[string]bool{"cut": true, "heal": false} }

func reply(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

// ErrNotRunning is the error of Ask when nobody listens there.
var ErrNotRunning = errors.New("no demo is running")

// askTimeout is far above what an answer on loopback takes.
const askTimeout = 2 * time.Second

// Ask has the demo whose control listener is at addr cut or heal a region.
func Ask(ctx context.Context, addr, verb, name string) (*Change, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	target := "http://" + addr + "/" + verb + "/" + url.PathEscape(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w at %s", ErrNotRunning, addr)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", addr, err)
	}
	return read(res.StatusCode, body, addr)
}

// read tells the answer of a demo from one of whatever else has the port.
func read(status int, body []byte, addr string) (*Change, error) {
	strange := fmt.Errorf("%s answers, but is no regiond demo", addr)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if status != http.StatusOK {
		var r refusal
		if err := d.Decode(&r); err != nil || r.Detail == "" {
			return nil, strange
		}
		return nil, errors.New(r.Detail)
	}
	var c Change
	if err := d.Decode(&c); err != nil || c.Region == "" {
		return nil, strange
	}
	return &c, nil
}
