//go:build compose

package compose

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answer is the used part of the answer to a check.
type answer struct {
	Status            int `json:"-"`
	Allowed           bool
	Name, Basis, Mode string
	Reason, Detail    string
	Limits            []struct {
		Name      string
		Remaining int64
	}
}

// sustained is what remains of that limit; −1 where it is not in the answer.
func (a answer) sustained() int64 {
	for _, l := range a.Limits {
		if l.Name == "sustained" {
			return l.Remaining
		}
	}
	return -1
}

// client has a short timeout: a deployment that does not answer within two seconds
// has not answered.
func client() *http.Client { return &http.Client{Timeout: 2 * time.Second} }

func (p *project) url(t *testing.T, region, path string) string {
	t.Helper()
	if p.ports[region] == "" {
		p.ports[region] = p.port(t, "regiond-"+region, "8080")
	}
	return "http://" + p.ports[region] + path
}

func parseAnswer(res *http.Response) (answer, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{Status: res.StatusCode}
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("%w in %s", err, body)
	}
	return a, nil
}

func (p *project) post(t *testing.T, region, path, tenant string, cost int) (answer, error) {
	t.Helper()
	body := fmt.Sprintf(`{"tenant": %q, "cost": %d}`, tenant, cost)
	res, err := client().Post(p.url(t, region, path), "application/json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(res)
}

// check asks for one unit, again until the answer was decided in Redis.
func (p *project) check(t *testing.T, region, tenant string) (a answer) {
	t.Helper()
	eventually(t, region+" checks "+tenant, func() (bool, string) {
		var err error
		if a, err = p.post(t, region, "/v1/check", tenant, 1); err != nil {
			return false, err.Error()
		}
		return known(a), fmt.Sprintf("%+v", a)
	})
	return a
}

// fill reports 20 units that many times for a new tenant, and returns it. What
// was reported while Redis was late, or answered too late for us, may count twice
// or not at all in Redis; then the next tenant is filled instead.
func (p *project) fill(t *testing.T, region, name string, reports int) (tenant string) {
	t.Helper()
	n := 0
	eventually(t, region+" fills a tenant", func() (bool, string) {
		n++
		tenant = fmt.Sprint(name, "-", n)
		for range reports {
			a, err := p.post(t, region, "/v1/report", tenant, 20)
			if err != nil || a.Status != 200 || !known(a) {
				return false, fmt.Sprintf("%s: %+v (%v)", tenant, a, err)
			}
		}
		return true, ""
	})
	return tenant
}

// usage is the answer a check would get, without charging.
func (p *project) usage(t *testing.T, region, tenant string) (answer, error) {
	t.Helper()
	res, err := client().Get(p.url(t, region, "/v1/usage/"+tenant))
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(res)
}

// await queries a region's usage of a tenant until ok returns true. What was
// answered without Redis does not count, and neither does a call without an answer.
func (p *project) await(t *testing.T, region, tenant string, ok func(answer) bool) answer {
	t.Helper()
	var a answer
	eventually(t, region+" about "+tenant, func() (bool, string) {
		var err error
		if a, err = p.usage(t, region, tenant); err != nil {
			return false, err.Error()
		}
		return known(a) && ok(a), fmt.Sprintf("%+v", a)
	})
	return a
}

// eventually asks again and again until it is so.
func eventually(t *testing.T, what string, so func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(timeout); ; <-tick.C {
		ok, now := so()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v, now %s", what, timeout, now)
		}
	}
}

// get asks nginx as a customer does.
func get(t *testing.T, url, key string) (status int, header http.Header, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	res, err := client().Do(req)
	if err != nil {
		return 0, nil, err
	}
	res.Body.Close()
	return res.StatusCode, res.Header, nil
}

// bodyHas reports whether a page has a text in it, and what it has.
func bodyHas(url, text string) (bool, string) {
	res, err := client().Get(url)
	if err != nil {
		return false, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return false, err.Error()
	}
	return strings.Contains(string(body), text), string(body)
}
