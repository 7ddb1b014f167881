package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// explainOptions are the words and flags of `explain`.
type explainOptions struct {
	target
	tenant string
	query  url.Values
	format *string
}

func explainFlags(args []string, stderr io.Writer) (*explainOptions, error) {
	f := NewFlags("explain", "explain TENANT [-d user=42]… [--cost N] [--policy P] [--addr URL] [--token-file FILE] [-o json]", stderr)
	o := &explainOptions{query: url.Values{}}
	dims := dimensionFlag(f)
	cost := f.Int64("cost", 1, "units that the check would spend")
	policy := f.String("policy", "", "policy to ask, instead of the tenant's own")
	o.flags(f, defaultData, "data")
	o.format = OutputFlag(f)
	words, err := Parse(f, args)
	if err != nil {
		return nil, err
	}
	switch {
	case len(words) != 1:
		return nil, fmt.Errorf("takes one tenant, got %d words", len(words))
	case words[0] == "":
		return nil, errors.New("the tenant is empty")
	}
	o.tenant = words[0]
	for name, value := range dims {
		o.query.Set("dim."+name, value)
	}
	if *policy != "" {
		o.query.Set("policy", *policy)
	}
	o.query.Set("cost", strconv.FormatInt(*cost, 10))
	return o, nil
}

// Explain asks a running regiond what a check of a tenant would get now, and why, and prints its
// sentences. It spends nothing. Exit code 2 when there is no answer.
func Explain(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := explainFlags(args, stderr)
	if err != nil {
		return ExitUsage, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	body, err := o.get(ctx, "/v1/explain/"+url.PathEscape(o.tenant)+"?"+o.query.Encode())
	if err != nil {
		return ExitUsage, err
	}
	var v struct {
		Explain struct {
			Sentences []string `json:"sentences"`
		} `json:"explain"`
	}
	if err := json.Unmarshal(body, &v); err != nil || len(v.Explain.Sentences) == 0 {
		return ExitUsage, fmt.Errorf("what answers at %s is not regiond's data listener: %.200q", o.addr, body)
	}
	if *o.format == "json" {
		fmt.Fprintln(stdout, string(bytes.TrimSpace(body)))
		return ExitOK, nil
	}
	plain := strings.NewReplacer("−", "-", "÷", "/")
	for _, line := range v.Explain.Sentences {
		fmt.Fprintln(stdout, printable(plain.Replace(line)))
	}
	return ExitOK, nil
}
