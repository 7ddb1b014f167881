package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
)

// regionsOptions are the flags of `regions`.
type regionsOptions struct {
	addr      string
	tokenFile string
	format    *string
}

func regionsFlags(args []string, stderr io.Writer) (*regionsOptions, error) {
	f := NewFlags("regions", "regions [--addr URL] [--token-file FILE] [-o json]", stderr)
	o := &regionsOptions{}
	f.StringVar(&o.addr, "addr", "http://127.0.0.1:9090", "regiond's admin listener")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the admin listener's bearer token")
	o.format = OutputFlag(f)
	words, err := Parse(f, args)
	if err == nil && len(words) > 0 {
		err = fmt.Errorf("unexpected argument %q", words[0])
	}
	return o, err
}

// Regions shows what a running regiond sees of the others: exit code 0
// when its mode is global, 1 when it is any other, 2 when it could not be asked.
func Regions(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := regionsFlags(args, stderr)
	if err != nil {
		return ExitUsage, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	body, err := o.ask(ctx)
	if err != nil {
		return ExitUsage, err
	}
	var v status.Report
	if err := json.Unmarshal(body, &v); err != nil || v.Mode.Mode == "" {
		return ExitUsage, fmt.Errorf("what answers at %s is not regiond's admin listener: %.200q", o.addr, body)
	}
	if *o.format == "json" {
		fmt.Fprintln(stdout, string(bytes.TrimSpace(body)))
	} else {
		v.Print(stdout, time.Now())
	}
	if v.Mode.Mode != quota.ModeGlobal.String() {
		return ExitFailed, nil
	}
	return ExitOK, nil
}

func (o *regionsOptions) ask(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL(o.addr)+"/v1/regions", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	if err := addToken(req, o.tokenFile); err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask regiond: %w; is its admin listener there?", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusedBy(o.addr, res.StatusCode, body)
	}
	return body, nil
}

// refusedBy is the error for an answer other than 200, with the detail of its problem document.
func refusedBy(addr string, status int, body []byte) error {
	var p struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Title == "" {
		return fmt.Errorf("status %d, and what answers at %s is not regiond's admin listener", status, addr)
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		return fmt.Errorf("%s: %s; name a file with an admin token by --token-file", p.Title, p.Detail)
	}
	return fmt.Errorf("%s: %s", p.Title, p.Detail)
}
