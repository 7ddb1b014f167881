package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Change is what cutting or healing a region did.
type Change struct {
	Region  string   `json:"region"`
	Off     bool     `json:"off"`     // whether it is cut off now
	Cut     []string `json:"cut"`     // all that are cut off now
	Refusal string   `json:"refusal"` // why nothing was done; "" with status 200
}

// NewControl answers POST /cut/{region}, /heal/{region} and /demand/{requests a second}. A page of another
// origin cannot call it, and the admin listeners, for which it is, refuse names that are not theirs.
func NewControl(c *Cuts, d *Demand) http.Handler {
	mux := http.NewServeMux()
	for verb, off := range map[string]bool{"cut": true, "heal": false} {
		mux.HandleFunc("POST /"+verb+"/{region}", func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("region")
			if err := c.Set(name, off); err != nil {
				reply(w, http.StatusNotFound, Change{Refusal: err.Error()})
				return
			}
			reply(w, http.StatusOK, Change{Region: name, Off: off, Cut: c.Off()})
		})
	}
	mux.HandleFunc("POST /demand/{rate}", func(w http.ResponseWriter, r *http.Request) {
		if err := d.Set(r.PathValue("rate")); err != nil {
			reply(w, http.StatusBadRequest, Change{Refusal: err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return http.NewCrossOriginProtection().Handler(mux)
}

func reply(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

// ErrNotRunning is the error of Ask when no demo listens there.
var ErrNotRunning = errors.New("no demo is running")

// askTimeout is far above what an answer on loopback takes.
const askTimeout = 2 * time.Second

// Ask has the demo on that port cut or heal a region.
func Ask(ctx context.Context, port int, verb, name string) (*Change, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	addr := net.JoinHostPort(loopback, strconv.Itoa(port+AdminOffset))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/demo/"+verb+"/"+url.PathEscape(name), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Requested-With", "regiond") // no web page sent this
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
	// What another program on the port answers is refused.
	var c Change
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil || c.Region == "" && c.Refusal == "" {
		return nil, fmt.Errorf("%s answers, but is no regiond demo", addr)
	}
	if c.Refusal != "" {
		return nil, errors.New(c.Refusal)
	}
	return &c, nil
}

// Scenario describes what a cut or its healing did and what will be seen next. program is
// how regiond is called, port the demo's first.
func (c *Change) Scenario(program string, port int) string {
	switch {
	case c.Off:
		return fmt.Sprintf(`%s is cut off from the others, both ways. Within 2 seconds:
  each side keeps to its part of every global limit: mode partitioned
  tenant %s (on_partition: open) is limited as if the others were idle
  tenant %s (on_partition: closed) is refused
Heal it with:
  %s
`, c.Region, Open, Closed, commandLine(program, "heal", c.Region, port))
	case len(c.Cut) > 0:
		return fmt.Sprintf("%s is connected; still cut off: %s\n", c.Region, list(c.Cut))
	}
	return c.Region + ` is connected. Nobody has to do anything:
  every region reports to the others what it has admitted meanwhile
  within about 3 seconds all are back in mode global; after a cut that
  follows another within a minute they wait longer, up to 30 seconds
`
}

// list is words as in a sentence.
func list(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
