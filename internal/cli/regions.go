package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/regiond/regiond/internal/status"
	"github.com/regiond/regiond/quota"
)

// Where `regiond serve` has its listeners without flags.
const (
	defaultData  = "http://127.0.0.1:8080"
	defaultAdmin = "http://127.0.0.1:9090"
)

// regionsOptions are the flags of `regions`.
type regionsOptions struct {
	target
	format *string
}

func regionsFlags(args []string, stderr io.Writer) (*regionsOptions, error) {
	f := NewFlags("regions", "regions [--addr URL] [--token-file FILE] [--ca-file FILE] [-o json]", stderr)
	o := &regionsOptions{}
	o.flags(f, defaultAdmin, "admin")
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
	body, err := o.get(ctx, "/v1/regions")
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
