{{/*
The name of everything the chart makes. It does not carry the release's name: two operators on the same namespaces
would fight over the same services, and with one name the second install is refused instead.
*/}}
{{- define "firsttoken.name" -}}
firsttoken-operator
{{- end }}

{{- define "firsttoken.selectorLabels" -}}
app.kubernetes.io/name: firsttoken-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "firsttoken.labels" -}}
{{ include "firsttoken.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "firsttoken.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "firsttoken.name" . }}
{{- else -}}
{{ fail "serviceAccount.create is false and serviceAccount.name is empty. Add --set serviceAccount.name=NAME, the account that the operator runs as." }}
{{- end }}
{{- end }}

{{/* Reference of one image: (dict "root" $ "name" "operator" | "sidecar" | "runtime"). A digest wins over a tag. */}}
{{- define "firsttoken.image" -}}
{{- $common := .root.Values.image -}}
{{- $own := index .root.Values.images .name -}}
{{- if not $common.registry -}}
{{ fail "image.registry is not set. Add --set image.registry=REGISTRY, the place your images are in: `make images REGISTRY=REGISTRY TAG=TAG PUSH=1` builds them and puts them there." }}
{{- end -}}
{{- $digest := $own.digest -}}
{{- if and (not $digest) (eq .name "operator") -}}
{{- $digest = $common.digest -}}
{{- end -}}
{{- if $digest -}}
{{ printf "%s/%s@%s" $common.registry $own.repository $digest }}
{{- else -}}
{{ printf "%s/%s:%s" $common.registry $own.repository ($own.tag | default $common.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{/* Namespaces the operator watches in scope "namespaced", as a JSON list. */}}
{{- define "firsttoken.namespaces" -}}
{{- if and (eq .Values.watch.scope "cluster") .Values.watch.namespaces -}}
{{ fail "watch.namespaces is set, but watch.scope=cluster watches all namespaces. Add --set-json watch.namespaces=[], or --set watch.scope=namespaced." }}
{{- end -}}
{{ .Values.watch.namespaces | default (list .Release.Namespace) | uniq | sortAlpha | toJson }}
{{- end }}

{{- define "firsttoken.firstNamespace" -}}
{{- if eq .Values.watch.scope "cluster" -}}
default
{{- else -}}
{{ include "firsttoken.namespaces" . | fromJsonArray | first }}
{{- end -}}
{{- end }}

{{/*
What the operator may do where it watches. tests/chart/permissions.py holds the same list: nothing on secrets,
serviceaccounts, roles and their bindings, pods/exec and nodes.
*/}}
{{- define "firsttoken.rules" -}}
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices]
  verbs: [get, list, watch]
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices/status]
  verbs: [patch]
# Children name their InferenceService as owner that blocks deletion, which some clusters allow only with this.
- apiGroups: [firsttoken.dev]
  resources: [inferenceservices/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# The patch is of one annotation, by which the kubelet refreshes the mounted flags at once. Deleted is a pod that
# does not take back a flag.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
# Read only, to say on the service why a pod does not start.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

{{/* Environment of the operator that comes from values, as a JSON map. */}}
{{- define "firsttoken.settings" -}}
{{- $settings := dict -}}
{{- $_ := set $settings "FIRSTTOKEN_WATCH_SCOPE" .Values.watch.scope -}}
{{- $namespaces := include "firsttoken.namespaces" . | fromJsonArray -}}
{{- if eq .Values.watch.scope "cluster" }}{{ $namespaces = list }}{{ end -}}
{{- $_ := set $settings "FIRSTTOKEN_WATCH_NAMESPACES" (join "," $namespaces) -}}
{{- $_ := set $settings "FIRSTTOKEN_SIDECAR_IMAGE" (include "firsttoken.image" (dict "root" . "name" "sidecar")) -}}
{{- $_ := set $settings "FIRSTTOKEN_RUNTIME_IMAGE" (include "firsttoken.image" (dict "root" . "name" "runtime")) -}}
{{- $_ := set $settings "FIRSTTOKEN_IMAGE_PULL_POLICY" .Values.image.pullPolicy -}}
{{- $_ := set $settings "FIRSTTOKEN_IMAGE_PULL_SECRETS" (join "," .Values.image.pullSecrets) -}}
{{- $_ := set $settings "FIRSTTOKEN_FORCE_FLAGS_OFF" (join "," .Values.forceFlagsOff) -}}
{{- $_ := set $settings "FIRSTTOKEN_LOG_LEVEL" .Values.operator.logLevel -}}
{{- $_ := set $settings "FIRSTTOKEN_LOG_FORMAT" .Values.operator.logFormat -}}
{{- $_ := set $settings "FIRSTTOKEN_METRICS_PORT" (toString .Values.metrics.port) -}}
{{- $_ := set $settings "FIRSTTOKEN_HEALTH_PORT" "8082" -}}
{{ $settings | toJson }}
{{- end }}
