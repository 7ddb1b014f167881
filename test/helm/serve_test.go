package helm_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/authority"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/ports"
)

// TestServes: the container's command starts regiond with the files of its ConfigMap and Secrets, its probes answer, and SIGTERM ends
// it within the pod's time. Neither Redis nor NATS nor a peer is there.
func TestServes(t *testing.T) {
	all := cases(t)
	for _, name := range []string{"minimal.yaml", "embedded-eu", "nats-us", "scaled.yaml", "secrets.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(load(t), all[name])
			if err != nil {
				t.Fatal(err)
			}
			serves(t, newRelease(objects))
		})
	}
}

func serves(t *testing.T, r *release) {
	t.Helper()
	pod := &r.deployment.Spec.Template.Spec
	container := &pod.Containers[0]
	// Ports of its own, in the files and in the flags. The gateway of an embedded NATS is on the port after gossip's.
	moved := map[string]int{}
	first := ports.Take(t, 1, 2, 3, 4)
	var replace []string
	for i, name := range []string{"http", "admin", "grpc", "gossip"} {
		moved[name] = first + i
		for _, p := range container.Ports {
			if p.Name == name {
				replace = append(replace, ":"+strconv.Itoa(int(p.ContainerPort)), ":"+strconv.Itoa(first+i))
			}
		}
	}
	dir := secrets(t)
	replace = append(replace, "/run/secrets", dir, "$(POD_IP)", "127.0.0.1", "0.0.0.0", "127.0.0.1")
	swap := strings.NewReplacer(replace...)
	config := r.write(t, swap)
	var args []string
	for _, arg := range container.Args {
		arg = strings.ReplaceAll(arg, "=:", "=127.0.0.1:")
		args = append(args, strings.ReplaceAll(swap.Replace(arg), "/etc/regiond", config))
	}
	args = append(args, "--drain=10ms")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	log := &capture.Log{}
	process := exec.CommandContext(ctx, regiond, args...)
	process.Stdout, process.Stderr = io.Discard, log
	process.Env = []string{"GOMEMLIMIT=" + container.Env[0].Value}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel() // it answers no more
		ended <- process.Wait()
	}()
	//nolint:gosec // the probes of Kubernetes verify no certificate
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for _, probe := range []string{container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path} {
		url := fmt.Sprintf("%s://127.0.0.1:%d%s", strings.ToLower(string(container.ReadinessProbe.HTTPGet.Scheme)), moved["admin"], probe)
		capture.Eventually(t, func() error {
			res, err := client.Get(url)
			if err == nil {
				if res.Body.Close(); res.StatusCode != http.StatusOK {
					err = errors.New(res.Status)
				}
			}
			if err != nil {
				return fmt.Errorf("%s: %w\nregiond %s\n%s", url, err, strings.Join(args, " "), log)
			}
			return nil
		})
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log)
	}
}

// secrets makes a folder with every file that a topology here names below /run/secrets.
func secrets(t *testing.T) string {
	t.Helper()
	certificate, key := authority.New(t, "helm").Issue(t, "regiond")
	const token = "me 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"gossip-key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n", "redis-password": "p", "sentinel-password": "p", "nats-password": "p",
		"tokens": token, "admin-tokens": token, "ca.pem": certificate, "nats-ca.pem": certificate, "cert.pem": certificate,
		"key.pem": key,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
