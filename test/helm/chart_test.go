// Package helm_test judges the chart in deploy/helm with Helm itself, the types of Kubernetes and of the Prometheus operator, the
// Pod Security Standards as the API server applies them, and regiond. These come with many modules, which the module of regiond
// does without.
package helm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/helm/regiond"

// edit is a change of one file of the chart.
type edit struct{ file, old, new string }

// load returns the chart, changed.
func load(t *testing.T, edits ...edit) *chart.Chart {
	t.Helper()
	original, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var files []*archive.BufferedFile
	for _, f := range original.Raw {
		files = append(files, &archive.BufferedFile{Name: f.Name, Data: f.Data})
	}
	for _, e := range edits {
		i := slices.IndexFunc(files, func(f *archive.BufferedFile) bool { return f.Name == e.file })
		if i < 0 || !bytes.Contains(files[i].Data, []byte(e.old)) {
			t.Fatalf("%s has no %q", e.file, e.old)
		}
		files[i].Data = bytes.ReplaceAll(files[i].Data, []byte(e.old), []byte(e.new))
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns what an installation of the chart would create.
func render(c *chart.Chart, values map[string]any) ([]runtime.Object, error) {
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "regiond", Namespace: "regiond", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	var errs []error
	for name, text := range texts {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---\s*$`).Split(text, -1) {
			var content any
			if err := yaml.Unmarshal([]byte(doc), &content); err == nil && content == nil {
				continue // what is off
			}
			o, err := decode([]byte(doc))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
				continue
			}
			objects = append(objects, o)
		}
	}
	return objects, errors.Join(errs...)
}

// decode reads a document as the API server does, and refuses fields that it would ignore or that stand twice.
func decode(doc []byte) (runtime.Object, error) {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), monitoring.AddToScheme(s)); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	o, _, err := strict.Decode(doc, nil, nil)
	return o, err
}

// cases are the values that the chart is judged with: files in testdata, and the commands of docs/deploy.md for each region.
func cases(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no values in testdata: ", err)
	}
	for _, file := range files {
		all[filepath.Base(file)] = valuesOf(t, read(t, file))
	}
	for _, region := range []string{"eu", "us", "ap"} {
		all["embedded-"+region], all["nats-"+region] = documented(t, region)
	}
	return all
}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := loader.LoadValues(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// documented are the values of the two installations of three clusters in docs/deploy.md, for one of the regions.
func documented(t *testing.T, region string) (embedded, nats map[string]any) {
	t.Helper()
	_, page, _ := strings.Cut(read(t, "../../docs/deploy.md"), "\n## Kubernetes\n")
	page, _, _ = strings.Cut(page, "\n## ")
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	commands := regexp.MustCompile(`helm upgrade --install regiond deploy/helm/regiond (.*)`).FindAllStringSubmatch(strings.ReplaceAll(page, "\\\n", ""), -1)
	if len(blocks) != 2 || len(commands) != 2 {
		t.Fatalf("docs/deploy.md has %d topologies and %d commands of three clusters", len(blocks), len(commands))
	}
	topology, line := blocks[0][1], blocks[1][1]
	embedded = flags(t, strings.ReplaceAll(commands[0][1], "$REGION", region), topology)
	own := regexp.MustCompile(`(?s)- name: (\w+)\n.*?redis: [^\n]*\n`).ReplaceAllStringFunc(topology, func(r string) string {
		name := strings.Fields(r)[2]
		return r + strings.ReplaceAll(line, "username: eu", "username: "+name)
	})
	if strings.Count(own, "tls://") != 3 {
		t.Fatal("the line of nats was not added to each region:\n" + own)
	}
	return embedded, flags(t, strings.ReplaceAll(commands[1][1], "$REGION", region), own)
}

// flags are the values that flags of helm give.
func flags(t *testing.T, command, topology string) map[string]any {
	t.Helper()
	values := map[string]any{}
	words := strings.Fields(strings.ReplaceAll(command, "'", ""))
	for i, word := range words {
		switch word {
		case "--set":
			if err := strvals.ParseInto(words[i+1], values); err != nil {
				t.Fatal(err)
			}
		case "--set-file":
			if words[i+1] != "topology=topology.yaml" {
				t.Fatalf("--set-file %s", words[i+1])
			}
			values["topology"] = topology
		}
	}
	return values
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestChart: Helm has no complaint, and every object is one that Kubernetes accepts, that fits the others and that regiond can serve by.
func TestChart(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.RunAll(chartDir, values, "regiond").Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("helm lint: %v", m)
				}
			}
			if err := judge(t, load(t), values); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOff: what is off is not there, and what is on is.
func TestOff(t *testing.T) {
	for name, want := range map[string]string{
		"off.yaml": "ConfigMap Deployment Service Service",
		"scaled.yaml": "ConfigMap Deployment HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget PrometheusRule " +
			"Service Service Service Service ServiceMonitor",
	} {
		objects, err := render(load(t), cases(t)[name])
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range objects {
			kinds = append(kinds, o.GetObjectKind().GroupVersionKind().Kind)
		}
		slices.Sort(kinds)
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
}

// TestChecksum: pods are replaced when the topology or a file beside it changes, and not for anything else.
func TestChecksum(t *testing.T) {
	base := read(t, "testdata/scaled.yaml")
	sum := func(text string) string {
		t.Helper()
		objects, err := render(load(t), valuesOf(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return newRelease(objects).deployment.Spec.Template.Annotations["checksum/config"]
	}
	same := sum(base)
	for _, row := range []struct {
		old, new string
		changes  bool
	}{
		{"units: 10000000", "units: 10000001", true},
		{"requests_per_unit: 10", "requests_per_unit: 11", true},
		{"priorityClassName: high", "priorityClassName: low", false},
	} {
		if got := sum(strings.Replace(base, row.old, row.new, 1)); (got != same) != row.changes || len(got) != 64 {
			t.Errorf("%s → %s: checksum %s after %s", row.old, row.new, got, same)
		}
	}
}

// TestRefusals: a mistake in the values ends the installation with what to do.
func TestRefusals(t *testing.T) {
	for _, row := range []struct{ base, set, want string }{
		// of the schema
		{"minimal.yaml", "replicas=two", "at '/replicas': got string, want integer"},
		{"minimal.yaml", "replicas=0", "at '/replicas': minimum: got 0, want 1"},
		{"minimal.yaml", "replica=2", "additional properties 'replica' not allowed"},
		{"minimal.yaml", "drain=5", "at '/drain': got number, want string"},
		{"minimal.yaml", "gossip.address=pods", "at '/gossip/address': value must be one of 'topology', 'pod'"},
		{"minimal.yaml", "service.type=NodePort", "at '/service/type': value must be one of 'ClusterIP', 'LoadBalancer'"},
		{"minimal.yaml", "goMemLimit=400Mi", "at '/goMemLimit': '400Mi' does not match pattern"},
		// of the templates
		{"embedded-eu", "region=mars", `region: "mars" is not in the topology; set it to one of eu, us, ap`},
		{"embedded-eu", "region=", `region: "" is not in the topology; set it to one of eu, us, ap`},
		{"embedded-eu", "replicas=2", "set gossip.address: pod, or keep to one"},
		{"embedded-eu", "gossip.address=pod", "name servers of yours in nats.urls, or set gossip.address: topology"},
		{"embedded-eu", "secrets=null", "list the names of Secrets whose keys are these files"},
		{"minimal.yaml", "replicas=2", "name its redis in the topology, or keep to one"},
		{"minimal.yaml", "autoscaling.enabled=true", "autoscaling.maxReplicas: 6 processes would each count alone"},
		{"scaled.yaml", "autoscaling.minReplicas=9", "autoscaling.minReplicas is above maxReplicas"},
		{"minimal.yaml", "topology=regions", "topology: "},
		{"minimal.yaml", "topology.policies=none", "topology: it has no list of regions"},
		{"minimal.yaml", "topology=regions: [{name: eu}]", `topology: http of region eu is "": name its port`},
		{"minimal.yaml", `files.topology\.yaml=x`, "files: topology.yaml is the value `topology`"},
	} {
		values := cases(t)[row.base]
		if err := strvals.ParseInto(strings.NewReplacer("[{", `\[{`, "{name: eu}]", `\{name: eu\}]`).Replace(row.set), values); err != nil {
			t.Fatal(err)
		}
		if _, err := render(load(t), values); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s, %s: %v, want %q", row.base, row.set, err, row.want)
		}
	}
}

// TestPackaged: what helm package puts into an archive has the rules and not a link to them.
func TestPackaged(t *testing.T) {
	for _, f := range load(t).Files {
		if f.Name == "files/regiond.rules.yml" && string(f.Data) == read(t, "../../deploy/prometheus/regiond.rules.yml") {
			return
		}
	}
	t.Error("the chart has not the rules of deploy/prometheus")
}
