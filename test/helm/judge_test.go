package helm_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// release is what one installation creates.
type release struct {
	objects    []runtime.Object
	deployment *apps.Deployment
	config     *core.ConfigMap
	services   []*core.Service
}

func newRelease(objects []runtime.Object) *release {
	r := &release{objects: objects}
	for _, o := range objects {
		switch o := o.(type) {
		case *apps.Deployment:
			r.deployment = o
		case *core.ConfigMap:
			r.config = o
		case *core.Service:
			r.services = append(r.services, o)
		}
	}
	return r
}

// judge renders the chart and returns all that is wrong with what comes out.
func judge(t *testing.T, c *chart.Chart, values map[string]any) error {
	t.Helper()
	objects, err := render(c, values)
	if err != nil {
		return err
	}
	r := newRelease(objects)
	if r.deployment == nil || r.config == nil {
		return errors.New("there is no Deployment or no ConfigMap")
	}
	return errors.Join(r.names(), r.restricted(), r.mounts(), r.selectors(), r.ports(), r.monitors(), r.valid(t))
}

// names have to be unlike each other, and those of Services labels of DNS.
func (r *release) names() error {
	var errs []error
	seen := map[string]bool{}
	for _, o := range r.objects {
		m := o.(meta.Object)
		id := fmt.Sprintf("%T %s", o, m.GetName())
		if seen[id] || m.GetName() == "" || len(m.GetName()) > 63 {
			errs = append(errs, fmt.Errorf("%s is duplicated or too long", id))
		}
		seen[id] = true
		if m.GetLabels()["app.kubernetes.io/instance"] != "regiond" {
			errs = append(errs, fmt.Errorf("%s does not say of which release it is", id))
		}
	}
	return errors.Join(errs...)
}

// restricted asks what admits pods to a namespace of the level "restricted".
func (r *release) restricted() error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	pod := &r.deployment.Spec.Template
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if got := policy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !got.Allowed {
		return fmt.Errorf("pod security: %s", got.ForbiddenDetail())
	}
	if c := &pod.Spec.Containers[0]; c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
		return errors.New("pod security: the root filesystem is writable")
	}
	if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
		return errors.New("pod security: a token of the cluster is mounted")
	}
	return nil
}

// mounts are of volumes, which are of this release or Secrets.
func (r *release) mounts() error {
	spec := &r.deployment.Spec.Template.Spec
	mounts := spec.Containers[0].VolumeMounts
	var errs []error
	for _, v := range spec.Volumes {
		if !slices.ContainsFunc(mounts, func(m core.VolumeMount) bool { return m.Name == v.Name && m.ReadOnly }) {
			errs = append(errs, fmt.Errorf("volume %s is not mounted read-only", v.Name))
		}
		if v.ConfigMap != nil && v.ConfigMap.Name != r.config.Name {
			errs = append(errs, fmt.Errorf("volume %s is of the ConfigMap %s", v.Name, v.ConfigMap.Name))
		}
	}
	if len(spec.Volumes) != len(mounts) {
		errs = append(errs, fmt.Errorf("%d mounts of %d volumes", len(mounts), len(spec.Volumes)))
	}
	return errors.Join(errs...)
}

// selectors of all objects have to match the pods.
func (r *release) selectors() error {
	pod := labels.Set(r.deployment.Spec.Template.Labels)
	var errs []error
	selects := func(o runtime.Object, s *meta.LabelSelector) {
		selector, err := meta.LabelSelectorAsSelector(s)
		if err == nil && (selector.Empty() || !selector.Matches(pod)) {
			err = fmt.Errorf("selector of %T %s does not match the pods", o, o.(meta.Object).GetName())
		}
		errs = append(errs, err)
	}
	selects(r.deployment, r.deployment.Spec.Selector)
	for _, c := range r.deployment.Spec.Template.Spec.TopologySpreadConstraints {
		selects(r.deployment, c.LabelSelector)
	}
	for _, o := range r.objects {
		switch o := o.(type) {
		case *core.Service:
			selects(o, &meta.LabelSelector{MatchLabels: o.Spec.Selector})
		case *disruption.PodDisruptionBudget:
			selects(o, o.Spec.Selector)
		case *networking.NetworkPolicy:
			selects(o, &o.Spec.PodSelector)
		case *autoscaling.HorizontalPodAutoscaler:
			if o.Spec.ScaleTargetRef.Name != r.deployment.Name || r.deployment.Spec.Replicas != nil {
				errs = append(errs, errors.New("the autoscaler and the Deployment do not fit"))
			}
		}
	}
	return errors.Join(errs...)
}

// ports that probes, Services and policies name are those of the container.
func (r *release) ports() error {
	container := &r.deployment.Spec.Template.Spec.Containers[0]
	var errs []error
	open := func(where string, port intstr.IntOrString, protocol core.Protocol) {
		if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool {
			return p.Name == port.StrVal && cmp.Or(p.Protocol, core.ProtocolTCP) == cmp.Or(protocol, core.ProtocolTCP)
		}) {
			errs = append(errs, fmt.Errorf("%s: the container has no port %q", where, port.String()))
		}
	}
	for name, p := range map[string]*core.Probe{"readinessProbe": container.ReadinessProbe, "livenessProbe": container.LivenessProbe} {
		if p == nil || p.HTTPGet == nil {
			errs = append(errs, fmt.Errorf("there is no %s", name))
			continue
		}
		open(name, p.HTTPGet.Port, core.ProtocolTCP)
	}
	var top struct {
		Access struct {
			CertFile string `json:"cert_file"`
		} `json:"access"`
	}
	errs = append(errs, yaml.Unmarshal([]byte(r.config.Data["topology.yaml"]), &top))
	for _, s := range r.services {
		for _, p := range s.Spec.Ports {
			if p.AppProtocol != nil && *p.AppProtocol == "kubernetes.io/h2c" && top.Access.CertFile != "" {
				errs = append(errs, fmt.Errorf("clients of the Service %s would not speak TLS", s.Name))
			}
			open("Service "+s.Name, p.TargetPort, p.Protocol)
		}
	}
	for _, o := range r.objects {
		n, ok := o.(*networking.NetworkPolicy)
		if !ok {
			continue
		}
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				protocol := core.ProtocolTCP
				if p.Protocol != nil {
					protocol = *p.Protocol
				}
				open("NetworkPolicy", *p.Port, protocol)
			}
		}
	}
	return errors.Join(errs...)
}

// monitors scrape the admin listener once, under the job and with the rules of deploy/prometheus.
func (r *release) monitors() error {
	var errs []error
	for _, o := range r.objects {
		switch o := o.(type) {
		case *monitoring.ServiceMonitor:
			selector, err := meta.LabelSelectorAsSelector(&o.Spec.Selector)
			if err != nil {
				return err
			}
			found := slices.DeleteFunc(slices.Clone(r.services), func(s *core.Service) bool { return !selector.Matches(labels.Set(s.Labels)) })
			if len(found) != 1 || found[0].Labels[o.Spec.JobLabel] != "regiond" ||
				!slices.ContainsFunc(found[0].Spec.Ports, func(p core.ServicePort) bool { return p.Name == o.Spec.Endpoints[0].Port }) {
				errs = append(errs, fmt.Errorf("the ServiceMonitor selects %d Services, or one without its port or the job regiond", len(found)))
			}
		case *monitoring.PrometheusRule:
			var want monitoring.PrometheusRuleSpec
			text, err := os.ReadFile("../../deploy/prometheus/regiond.rules.yml")
			if err = errors.Join(err, yaml.UnmarshalStrict(text, &want)); err != nil {
				return err
			}
			if len(want.Groups) == 0 || !reflect.DeepEqual(o.Spec, want) {
				errs = append(errs, errors.New("the PrometheusRule has not the rules of deploy/prometheus"))
			}
		}
	}
	return errors.Join(errs...)
}

// valid asks regiond about the topology that the pods read.
func (r *release) valid(t *testing.T) error {
	t.Helper()
	dir := r.write(t, strings.NewReplacer())
	out, err := exec.CommandContext(t.Context(), regiond, "validate", filepath.Join(dir, "topology.yaml")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("regiond validate: %w\n%s", err, out)
	}
	return nil
}

// write puts the files of the ConfigMap, with replacements, into a folder.
func (r *release) write(t *testing.T, replace *strings.Replacer) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range r.config.Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(replace.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// regiond is the program, built from this tree by TestMain.
var regiond string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "regiond-helm")
		if err == nil {
			defer os.RemoveAll(dir)
			regiond = filepath.Join(dir, "regiond")
			err = exec.CommandContext(context.Background(), "go", "build", "-C", "../..", "-o", regiond, "./cmd/regiond").Run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "build regiond:", err)
			return 1
		}
		return m.Run()
	}())
}

// TestJudgesBite: each judge finds the mistake that it is for.
func TestJudgesBite(t *testing.T) {
	const deployment, service = "templates/deployment.yaml", "templates/service.yaml"
	for _, row := range []struct {
		edit
		want string
	}{
		{edit{deployment, "minReadySeconds:", "minReadySecond:"}, `unknown field "spec.minReadySecond"`},
		{edit{deployment, "periodSeconds: 2\n", "periodSeconds: two\n"}, "cannot unmarshal string"},
		{edit{"templates/prometheus.yaml", "jobLabel:", "jobLable:"}, `unknown field "spec.jobLable"`},
		{edit{"templates/prometheus.yaml", "jobLabel: app.kubernetes.io/name", "jobLabel: app.kubernetes.io/version"}, "without its port or the job regiond"},
		{edit{"templates/prometheus.yaml", "component: admin", "component: metrics"}, "the ServiceMonitor selects 0 Services"},
		{edit{"files/regiond.rules.yml", "> 0.01", "> 0.02"}, "has not the rules of deploy/prometheus"},
		{edit{"templates/availability.yaml", "kind: HorizontalPodAutoscaler", "kind: HorizontalPodAutoscale"}, `no kind "HorizontalPodAutoscale" is registered`},
		{edit{"templates/availability.yaml", `name: {{ include "regiond.fullname" . }}}`, "name: other}"}, "the autoscaler and the Deployment do not fit"},
		{edit{"values.yaml", "drop: [ALL]", "drop: [KILL]"}, "pod security: unrestricted capabilities"},
		{edit{"values.yaml", "runAsNonRoot: true", "runAsNonRoot: false"}, "pod security: runAsNonRoot != true"},
		{edit{"values.yaml", "seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}"}, "pod security: seccompProfile"},
		{edit{"values.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"}, "the root filesystem is writable"},
		{edit{deployment, "automountServiceAccountToken: false", "automountServiceAccountToken: true"}, "a token of the cluster is mounted"},
		{edit{deployment, "name: secrets, mountPath", "name: secret, mountPath"}, "volume secrets is not mounted"},
		{edit{deployment, `configMap: {name: {{ include "regiond.fullname" . }}}`, "configMap: {name: regiond}"}, "is of the ConfigMap regiond"},
		{edit{service, `selector: {{- include "regiond.selector" . | nindent 4 }}`, "selector: {app: regiond}"}, "selector of *v1.Service limits does not match the pods"},
		{edit{"templates/networkpolicy.yaml", `{{- include "regiond.selector" . | nindent 6 }}`, "{}"}, "selector of *v1.NetworkPolicy limits does not match the pods"},
		{edit{service, "targetPort: gossip-udp", "targetPort: gossip"}, `Service limits-gossip: the container has no port "gossip"`},
		{edit{deployment, "/readyz, port: admin", "/readyz, port: health"}, `readinessProbe: the container has no port "health"`},
		{edit{"templates/networkpolicy.yaml", "port: http", "port: web"}, `NetworkPolicy: the container has no port "web"`},
		{edit{service, `}}-grpc`, `}}-admin`}, "limits-admin is duplicated or too long"},
		{edit{"templates/_helpers.tpl", "toYaml .Values.topology", "omit .Values.topology \"tenants\" | toYaml"}, "/tenants: is missing and has no default"},
		{edit{"templates/configmap.yaml", `labels: {{- include "regiond.labels" . | nindent 4 }}`, "labels: {}"}, "does not say of which release it is"},
	} {
		t.Run(row.want, func(t *testing.T) {
			err := judge(t, load(t, row.edit), cases(t)["scaled.yaml"])
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s with %q: %v, want %q", row.file, row.new, err, row.want)
			}
		})
	}
}
