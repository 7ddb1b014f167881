package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/cmd/regiond/internal/demo"
)

// traffic asks every region over HTTP, as a gateway would, until ctx ends.
func (t *trio) traffic(ctx context.Context) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: checkTimeout}
	var wg sync.WaitGroup
	for i, d := range t.daemons {
		every := time.Second / time.Duration(demo.Rates()[i])
		wg.Go(func() { knock(ctx, client, "http://"+d.dataAt.Addr().String(), every) })
	}
	wg.Wait()
	return nil
}

func knock(ctx context.Context, client *http.Client, url string, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/check", strings.NewReader(`{"tenant":"`+demo.Busy+`"}`))
		if err != nil {
			return // the address is one that we listen on
		}
		if res, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body) // only so that the connection is used again
			res.Body.Close()
		}
	}
}
