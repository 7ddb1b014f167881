package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A region is reopened by those who have read what that may cost, and said yes.
func TestReopen(t *testing.T) {
	var posted []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"region": "eu", "mode": {"mode": "global"}, "store": {"lost": "2026-11-24T10:00:00Z"}}`)
		case r.URL.Path == "/v1/reopen/eu":
			posted = append(posted, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"title": "The request breaks a rule", "detail": "this process is of region eu"}`)
		}
	}))
	defer s.Close()
	for _, row := range []struct {
		args  string
		code  int
		words string
		posts int
	}{
		{"eu", 1, "Region eu lost data at 2026-11-24T10:00:00Z. Reopened, it may admit its share of each limit with max_overshoot once more.", 0},
		{"eu --yes", 0, "reopened", 1},
		{"us --yes", 2, "this process is of region eu", 0},
		{"", 2, "", 0},
	} {
		posted = nil
		got := invoke(t, append(strings.Fields("regions reopen --addr "+s.URL), strings.Fields(row.args)...)...)
		if got.code != row.code || !strings.Contains(got.stdout+got.stderr, row.words) || len(posted) != row.posts {
			t.Errorf("%q: %+v, posted %q", row.args, got, posted)
		}
	}
}
