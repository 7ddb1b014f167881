{{- define "regiond.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* What never changes of a release: Deployments and Services select by it. */ -}}
{{- define "regiond.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "regiond.labels" -}}
{{ include "regiond.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "regiond.topology" -}}
{{- if kindIs "map" .Values.topology -}}
{{- toYaml .Values.topology -}}
{{- else -}}
{{- .Values.topology | default (.Files.Get "files/topology.yaml") -}}
{{- end -}}
{{- end -}}

{{- /* The data of the ConfigMap, and what its checksum is of. */ -}}
{{- define "regiond.files" -}}
{{- $files := dict "topology.yaml" (include "regiond.topology" .) -}}
{{- range $name, $text := .Values.files -}}
{{- if eq $name "topology.yaml" }}{{ fail "files: topology.yaml is the value `topology`; give this file another name" }}{{ end -}}
{{- $_ := set $files $name $text -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{- define "regiond.port" -}}
{{- $port := regexFind "[0-9]+$" (index . 0) | int -}}
{{- if not $port }}{{ fail (printf "topology: %s of region %s is %q: name its port, since Services lead to it" (index . 1) (index . 2) (index . 0)) }}{{ end -}}
{{- $port -}}
{{- end -}}

{{- /* Facts about the region that the templates need, as JSON; ports are 0 where it does not listen. It refuses what pods could
not serve. Everything else about the topology is for regiond to judge. */ -}}
{{- define "regiond.facts" -}}
{{- $top := fromYaml (include "regiond.topology" .) -}}
{{- if $top.Error }}{{ fail (printf "topology: %s" $top.Error) }}{{ end -}}
{{- if not (kindIs "slice" $top.regions) }}{{ fail "topology: it has no list of regions; see topology.yaml of the repository" }}{{ end -}}
{{- $names := list -}}
{{- $region := dict -}}
{{- range $r := $top.regions -}}
{{- $names = append $names $r.name -}}
{{- if or (eq $r.name $.Values.region) (and (not $.Values.region) (eq (len $top.regions) 1)) }}{{ $region = $r }}{{ end -}}
{{- end -}}
{{- if not $region -}}
{{- fail (printf "region: %q is not in the topology; set it to one of %s" .Values.region (join ", " $names)) -}}
{{- end -}}
{{- $facts := dict "region" $region.name "grpc" 0 "gossip" 0 "gateway" 0 "api" "http" "scheme" "HTTP" -}}
{{- $_ := set $facts "http" (include "regiond.port" (list (default "" $region.http) "http" $region.name) | int) -}}
{{- $_ := set $facts "admin" (include "regiond.port" (list (default "0.0.0.0:9090" $region.admin) "admin" $region.name) | int) -}}
{{- if $region.grpc }}{{ $_ := set $facts "grpc" (include "regiond.port" (list $region.grpc "grpc" $region.name) | int) }}{{ end -}}
{{- if ($top.access).cert_file }}{{ $_ := set $facts "api" "https" }}{{ end -}}
{{- if ($top.access).admin_cert_file }}{{ $_ := set $facts "scheme" "HTTPS" }}{{ end -}}
{{- $bus := or (not $region.nats) ($region.nats).embedded -}}
{{- if $region.gossip -}}
{{- $_ := set $facts "gossip" (include "regiond.port" (list (default "" $region.gossip.bind) "gossip.bind" $region.name) | int) -}}
{{- $_ := set $facts "advertised" (include "regiond.port" (list (default "" $region.gossip.advertise) "gossip.advertise" $region.name) | int) -}}
{{- if $bus -}}
{{- $gateway := ($region.nats).gateway -}}
{{- $_ := set $facts "gateway" (ternary (include "regiond.port" (list (default "x:1" $gateway) "nats.gateway" $region.name) | int) (add $facts.advertised 1) (not (empty $gateway))) -}}
{{- end -}}
{{- end -}}
{{- $processes := ternary .Values.autoscaling.minReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- $_ := set $facts "processes" (max 1 $processes) -}}
{{- $most := ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled | int -}}
{{- if and .Values.autoscaling.enabled (gt $processes $most) }}{{ fail "autoscaling.minReplicas is above maxReplicas; lower it" }}{{ end -}}
{{- $several := printf "%s: %d processes" (ternary "autoscaling.maxReplicas" "replicas" .Values.autoscaling.enabled) $most -}}
{{- if and (gt $most 1) (or (not $region.redis) ($region.redis).embedded) -}}
{{- fail (printf "%s would each count alone, since region %s keeps usage in memory; name its redis in the topology, or keep to one" $several $region.name) -}}
{{- end -}}
{{- if and (gt $most 1) $facts.gossip (ne .Values.gossip.address "pod") -}}
{{- fail (printf "%s of region %s would share the address %s; set gossip.address: pod, or keep to one" $several $region.name $region.gossip.advertise) -}}
{{- end -}}
{{- if and $facts.gateway (eq .Values.gossip.address "pod") -}}
{{- fail (printf "gossip.address: pod: the embedded NATS of region %s is reached at the topology's address only; name servers of yours in nats.urls, or set gossip.address: topology" $region.name) -}}
{{- end -}}
{{- if and (not .Values.secrets) (contains "\"/run/secrets/" (toJson $top)) -}}
{{- fail "secrets: the topology names files in /run/secrets, and no Secret has them; list the names of Secrets whose keys are these files" -}}
{{- end -}}
{{- toJson $facts -}}
{{- end -}}
