package ratelimit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/redisserver"
)

// TestIntegration does what their integration tests do, with the files of these, on each kind of Redis. Not here, as
// docs/coming-from.md says: Memcached, statistics by value, and what is charged beside a descriptor that refuses.
func TestIntegration(t *testing.T) {
	t.Parallel()
	binary, folder := gateway.Build(t, "../.."), filepath.Join(module(t), "test/integration/runtime/current/ratelimit")
	var domains []domain
	for name, path := range map[string]string{
		"basic": "config/basic.yaml", "another": "config/another.yaml", "share-threshold-test": "config/share_threshold.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			t.Fatal(err)
		}
		domains = append(domains, domain{name, string(text), ""})
	}
	reload, err := os.ReadFile(filepath.Join(folder, "reload.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	domains = append(domains, domain{"reload", "domain: reload\n", ""})
	for kind, redis := range map[string]func(t *testing.T) string{
		"standalone": func(t *testing.T) string {
			t.Helper()
			return fmt.Sprintf("addrs: [%q]", redisserver.Start(t, redisserver.Options{}).Addr())
		},
		"cluster": func(t *testing.T) string {
			t.Helper()
			c := redisserver.StartCluster(t, 5*time.Second)
			return fmt.Sprintf(`mode: cluster, addrs: ["%s"]`, strings.Join(c.Addrs(), `", "`))
		},
		"sentinel": func(t *testing.T) string {
			t.Helper()
			w := redisserver.StartWatched(t, 5*time.Second)
			return fmt.Sprintf(`mode: sentinel, master: %s, addrs: ["%s"]`, redisserver.Master, strings.Join(w.Addrs(), `", "`))
		},
		"password": func(t *testing.T) string {
			t.Helper()
			file := filepath.Join(t.TempDir(), "password")
			write(t, file, "password123\n")
			s := redisserver.Start(t, redisserver.Options{Args: strings.Fields("--user regiond on >password123 ~rl:* &* +@all")})
			return fmt.Sprintf("addrs: [%q], username: regiond, password_file: %q", s.Addr(), file)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			i := &integration{T: t}
			i.server, i.root = startOursOn(t, binary, redis(t), domains)
			t.Run("unknown", i.unknown)
			t.Run("over", i.over)
			t.Run("two", i.two)
			t.Run("until", i.until)
			t.Run("share", i.share)
			t.Run("reload", func(t *testing.T) { i.reload(t, string(reload)) })
		})
	}
}

type integration struct {
	*testing.T
	server *server
	root   string // the folder of our configuration
}

// say asks about descriptors of one entry each, "key=value", and returns the answer and its story.
func (i *integration) say(t *testing.T, domain string, entries ...string) (a *ratelimit.RateLimitResponse, text string) {
	t.Helper()
	q := &ratelimit.RateLimitRequest{Domain: domain, HitsAddend: 1}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		q.Descriptors = append(q.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
	}
	a = i.server.ask(t, q)
	return a, story(a)
}

// expect holds what is answered to stories without the name of the limit.
func (i *integration) expect(t *testing.T, want, domain string, entries ...string) {
	t.Helper()
	if _, got := i.say(t, domain, entries...); strings.ReplaceAll(got, ` ""`, "") != want {
		t.Errorf("%v of %s: %s, want %s", entries, domain, got, want)
	}
}

func (i *integration) unknown(t *testing.T) {
	i.expect(t, "OK OK/0 of 0 UNKNOWN", "foo", "hello=world")
	i.expect(t, "OK OK/0 of 0 UNKNOWN", "basic", "hello=world")
	i.expect(t, "OK OK/49 of 50 SECOND", "basic", "key1=foo")
}

func (i *integration) over(t *testing.T) {
	for n := range 25 {
		if n < 20 {
			i.expect(t, fmt.Sprintf("OK OK/%d of 20 MINUTE", 19-n), "another", "key2=over")
		} else {
			i.expect(t, "OVER_LIMIT OVER_LIMIT/0 of 20 MINUTE", "another", "key2=over")
		}
	}
}

// two: what they charge beside a refusal, unless they are told not to, we do not.
func (i *integration) two(t *testing.T) {
	for n := range 15 {
		if n < 10 {
			i.expect(t, fmt.Sprintf("OK OK/%d of 20 MINUTE OK/%d of 10 HOUR", 19-n, 9-n), "another", "key2=two", "key3=two")
		} else {
			i.expect(t, "OVER_LIMIT OK/10 of 20 MINUTE OVER_LIMIT/0 of 10 HOUR", "another", "key2=two", "key3=two")
		}
	}
}

// until: the time until the limit is free again passes; a request begins it anew, since windows slide.
func (i *integration) until(t *testing.T) {
	for range 20 {
		i.say(t, "another", "key4=until")
	}
	first, _ := i.say(t, "another", "key4=until")
	before := first.GetStatuses()[0].GetDurationUntilReset().GetSeconds()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if again, _ := i.say(t, "another", "key4=until"); again.GetStatuses()[0].GetDurationUntilReset().GetSeconds() < before {
			return
		}
	}
	t.Errorf("still %d s until the reset", before)
}

func (i *integration) share(t *testing.T) {
	for n := range 10 {
		i.expect(t, fmt.Sprintf("OK OK/%d of 10 HOUR", 9-n), "share-threshold-test", "files=files/a.pdf")
	}
	i.expect(t, "OVER_LIMIT OVER_LIMIT/0 of 10 HOUR", "share-threshold-test", "files=files/b.csv")
	for n := range 10 {
		i.expect(t, "OK OK/9 of 10 HOUR", "share-threshold-test", fmt.Sprint("files_no_share=files_no_share/", n))
	}
}

func (i *integration) reload(t *testing.T, file string) {
	i.expect(t, "OK OK/0 of 0 UNKNOWN", "reload", "block=foo")
	await := func(want string) {
		t.Helper()
		tick, got := time.NewTicker(100*time.Millisecond), ""
		defer tick.Stop()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
			if _, got = i.say(t, "reload", "block=foo"); strings.HasPrefix(got, want) {
				return
			}
		}
		t.Errorf("%s, want %s", got, want)
	}
	path := filepath.Join(i.root, "reload.yaml")
	write(t, path, file)
	await("OVER_LIMIT")
	i.expect(t, "OK OK/49 of 50 SECOND", "reload", "key1=foo")
	write(t, path, "domain: reload\n")
	await("OK")
}
