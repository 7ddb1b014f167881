package demo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// traffic asks every region over HTTP, as a gateway would, until ctx ends.
func (c *cluster) traffic(ctx context.Context) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: askTimeout}
	var wg sync.WaitGroup
	for i, node := range c.nodes {
		every := time.Second / time.Duration(Rates()[i])
		wg.Go(func() { sendLoad(ctx, client, "http://"+node.DataAddr().String(), every) })
	}
	wg.Wait()
	return nil
}

func sendLoad(ctx context.Context, client *http.Client, url string, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/check", strings.NewReader(`{"tenant":"`+Busy+`"}`))
		if err != nil {
			return // the address is one that we listen on
		}
		if res, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body) // only so that the connection is used again
			res.Body.Close()
		}
	}
}
