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
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Change is what cutting or healing a region did.
type Change struct {
	Region  string   `json:"region"`
	Off     bool     `json:"off"`     // whether it is cut off now
	Changed bool     `json:"changed"` // false: it was so already
	Cut     []string `json:"cut"`     // all that are cut off now
	Regions []string `json:"regions"` // all of the demo
	Refusal string   `json:"refusal"` // why nothing was done; "" with status 200
}

// NewControl answers POST /cut/{region}, /heal/{region} and /demand/{requests a second}. A page in
// a browser cannot call it from another origin, nor under a name of its own.
func NewControl(c *Cuts, d *Demand) http.Handler {
	mux := http.NewServeMux()
	for verb, off := range verbs() {
		mux.HandleFunc("POST /"+verb+"/{region}", func(w http.ResponseWriter, r *http.Request) {
			name := r.PathValue("region")
			changed, err := c.Set(name, off)
			if err != nil {
				reply(w, http.StatusNotFound, Change{Refusal: err.Error()})
				return
			}
			reply(w, http.StatusOK, Change{Region: name, Off: off, Changed: changed, Cut: c.Off(), Regions: c.regions})
		})
	}
	mux.HandleFunc("POST /demand/{rate}", func(w http.ResponseWriter, r *http.Request) {
		if err := d.Set(r.PathValue("rate")); err != nil {
			reply(w, http.StatusBadRequest, Change{Refusal: err.Error()})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	protected := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if anyName(r.Host) {
			reply(w, http.StatusMisdirectedRequest, Change{Refusal: "call the demo by its address, or as localhost"})
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// anyName reports whether a host is a name that its owner could have resolve to here (DNS rebinding).
func anyName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host != "" && host != "localhost" && !strings.HasSuffix(host, ".localhost") && err != nil
}

// verbs are the calls, and whether a region is cut off after each.
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

// ErrNotRunning is the error of Ask when no demo listens there.
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
	case c.Off && !c.Changed:
		return fmt.Sprintf("%s is cut off already; heal it with:\n  %s\n", c.Region, commandLine(program, "heal", c.Region, port))
	case c.Off:
		return c.cut(commandLine(program, "heal", c.Region, port))
	case !c.Changed:
		return fmt.Sprintf("%s is not cut off; cut it off with:\n  %s\n", c.Region, commandLine(program, "cut", c.Region, port))
	default:
		return c.healed()
	}
}

func (c *Change) cut(heal string) string {
	var b strings.Builder
	together := without(c.Regions, c.Cut)
	fmt.Fprintf(&b, "%s is cut off from %s, both ways.\n", c.Region, list(without(c.Regions, []string{c.Region})))
	b.WriteString("\nWithin 2 seconds nobody is in mode global any more:\n")
	if len(together) > 1 {
		fmt.Fprintf(&b, "  %s: mode partitioned, only its own part of each global limit\n", list(c.Cut))
		fmt.Fprintf(&b, "  %s go on together, with the parts of both\n", list(together))
	} else {
		b.WriteString("  each region may use its own part of every global limit: mode partitioned\n")
	}
	fmt.Fprintf(&b, "  tenant %s (on_partition: open) is limited as if the others were idle\n", Open)
	fmt.Fprintf(&b, "  tenant %s (on_partition: closed) is refused\n", Closed)
	fmt.Fprintf(&b, "\nHeal it with:\n  %s\n", heal)
	return b.String()
}

func (c *Change) healed() string {
	if len(c.Cut) > 0 {
		return fmt.Sprintf("%s is connected again; still cut off: %s\n", c.Region, list(c.Cut))
	}
	return fmt.Sprintf("%s is connected again. Nobody has to do anything:\n", c.Region) +
		"  every region reports to the others what it has admitted meanwhile\n" +
		"  within about 3 seconds all are back in mode global; after a cut that\n" +
		"  follows another within a minute they wait longer, up to 30 seconds\n"
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(some, r) })
}

// list is words as in a sentence.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
