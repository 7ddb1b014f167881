package foreign_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/test/authority"
	"github.com/regiond/regiond/test/ports"
)

// TestH2Spec: both listeners that speak HTTP/2 pass the cases of h2spec, but for those of testdata/h2spec.txt.
func TestH2Spec(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "h2spec")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/summerwind/h2spec/cmd/h2spec").CombinedOutput(); err != nil {
		t.Fatalf("build h2spec: %v\n%s", err, out)
	}
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certText, keyText := authority.New(t, "h2spec").Issue(t, "localhost")
	if err := errors.Join(os.WriteFile(cert, []byte(certText), 0o600), os.WriteFile(key, []byte(keyText), 0o600)); err != nil {
		t.Fatal(err)
	}
	grpc := ports.Addr(t)
	data, _ := serve(t, fmt.Sprintf(", grpc: %q", grpc), oneLimit+fmt.Sprintf("access: {cert_file: %q, key_file: %q}\n", cert, key))
	known := strings.Split(read(t, "test/foreign/testdata/h2spec.txt"), "\n")
	for listener, addr := range map[string]string{"http": data, "grpc": grpc} {
		t.Run(listener, func(t *testing.T) {
			t.Parallel()
			failed := h2spec(t, binary, addr, 140)
			// Many cases race with the end of the connection, which h2spec reads as it comes: what fails is run alone again.
			for range 3 {
				failed = slices.DeleteFunc(failed, func(c string) bool { return slices.Contains(known, listener+" "+c) })
				failed = slices.DeleteFunc(failed, func(c string) bool {
					section, _, _ := strings.Cut(c, " ")
					return !slices.Contains(h2spec(t, binary, addr, 1, section), c)
				})
			}
			for _, name := range failed {
				t.Errorf("h2spec fails: %s", name)
			}
		})
	}
}

// h2spec runs at least so many cases, those of the sections or all, and returns what fails: section and case. It waits two
// seconds for each answer that does not come: Go's server closes a connection a second after it refused it.
func h2spec(t *testing.T, binary, addr string, atLeast int, sections ...string) (failed []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.xml")
	args := append([]string{"-h", host, "-p", port, "-t", "-k", "-o", "2", "-j", report}, sections...)
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	text, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("h2spec: %v: %v\n%s", err, readErr, out)
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			cases++
			if c.Failure != nil || c.Error != nil {
				failed = append(failed, c.Package+" "+c.Name)
			}
		}
	}
	if cases < atLeast {
		t.Errorf("only %d cases were run\n%s", cases, out)
	}
	return failed
}
