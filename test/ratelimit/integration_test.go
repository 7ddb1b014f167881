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

	"github.com/regiond/regiond/test/capture"
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
			server, root := startOursOn(t, binary, redis(t), domains)
			for _, row := range integration {
				for n := range row.times {
					want := row.want
					for _, left := range row.left {
						want = strings.Replace(want, "LEFT", fmt.Sprint(left-n), 1)
					}
					if got := server.say(t, row.domain, strings.ReplaceAll(row.entries, "N", fmt.Sprint(n))); got != want {
						t.Errorf("%s of %s, request %d: %s, want %s", row.entries, row.domain, n, got, want)
					}
				}
			}
			const refused = "OVER_LIMIT OVER_LIMIT/0 of 0 SECOND"
			for _, step := range [][2]string{{string(reload), refused}, {"domain: reload\n", "OK OK/0 of 0 UNKNOWN"}} {
				write(t, filepath.Join(root, "reload.yaml"), step[0])
				capture.Eventually(t, func() error {
					if got := server.say(t, "reload", "block=foo"); got != step[1] {
						return fmt.Errorf("after the reload %s, want %s", got, step[1])
					}
					return nil
				})
			}
		})
	}
}

// integration is what they ask, "key=value" of one descriptor each, how often, and the stories of the answers, in which what is
// left goes down by one. What they charge beside a refusal, unless they are told not to, we do not.
var integration = []struct {
	domain, entries string
	times           int
	want            string
	left            []int
}{
	{"foo", "hello=world", 1, "OK OK/0 of 0 UNKNOWN", nil},
	{"basic", "hello=world", 1, "OK OK/0 of 0 UNKNOWN", nil},
	{"basic", "key1=foo", 1, "OK OK/49 of 50 SECOND", nil},
	{"another", "key2=over", 20, "OK OK/LEFT of 20 MINUTE", []int{19}},
	{"another", "key2=over", 5, "OVER_LIMIT OVER_LIMIT/0 of 20 MINUTE", nil},
	{"another", "key2=two key3=two", 10, "OK OK/LEFT of 20 MINUTE OK/LEFT of 10 HOUR", []int{19, 9}},
	{"another", "key2=two key3=two", 5, "OVER_LIMIT OK/10 of 20 MINUTE OVER_LIMIT/0 of 10 HOUR", nil},
	{"share-threshold-test", "files=files/a.pdf", 10, "OK OK/LEFT of 10 HOUR", []int{9}},
	{"share-threshold-test", "files=files/b.csv", 1, "OVER_LIMIT OVER_LIMIT/0 of 10 HOUR", nil},
	{"share-threshold-test", "files_no_share=files_no_share/N", 10, "OK OK/9 of 10 HOUR", nil},
	{"reload", "block=foo", 1, "OK OK/0 of 0 UNKNOWN", nil},
}

// say asks about descriptors of one entry each, and returns the story of the answer without the name of the limit.
func (s *server) say(t *testing.T, domain, entries string) string {
	t.Helper()
	q := &ratelimit.RateLimitRequest{Domain: domain, HitsAddend: 1}
	for e := range strings.FieldsSeq(entries) {
		key, value, _ := strings.Cut(e, "=")
		q.Descriptors = append(q.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}})
	}
	return strings.ReplaceAll(story(s.ask(t, q)), ` ""`, "")
}
