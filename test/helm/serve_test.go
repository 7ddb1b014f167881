package helm_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
	var log bytes.Buffer
	process := exec.CommandContext(ctx, regiond, args...)
	process.Stdout, process.Stderr = io.Discard, &log
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
		if err := await(ctx, client, url); err != nil {
			cancel()
			t.Fatalf("%s: %v, then %v\nregiond %s\n%s", url, err, <-ended, strings.Join(args, " "), log.String())
		}
	}
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

// await gets a URL until it is 200.
func await(ctx context.Context, client *http.Client, url string) error {
	var last error
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err == nil {
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s: %s", res.Status, body)
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), last)
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// secrets makes a folder with every file that a topology here names below /run/secrets.
func secrets(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"regiond"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	const token = "me 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"gossip-key": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n", "redis-password": "p", "sentinel-password": "p", "nats-password": "p",
		"tokens": token, "admin-tokens": token, "ca.pem": certificate, "nats-ca.pem": certificate, "cert.pem": certificate,
		"key.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
