{{- define "rollplex.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "rollplex.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "rollplex.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "rollplex.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* cluster-wide objects of two releases of one name in two namespaces must not meet */}}
{{- define "rollplex.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "rollplex.fullname" .) }}
{{- end }}

{{- define "rollplex.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "rollplex.fullname" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "rollplex.selector" -}}
app.kubernetes.io/name: {{ include "rollplex.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "rollplex.labels" -}}
{{ include "rollplex.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: rollplex
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* of (list $ annotations): those of every object, then the object's own */}}
{{- define "rollplex.annotations" -}}
{{- $root := index . 0 }}
{{- $all := merge (dict) (index . 1) $root.Values.extraAnnotations }}
{{- with $all }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* of (list $ image); empty without a repository */}}
{{- define "rollplex.image" -}}
{{- $root := index . 0 }}
{{- $image := index . 1 }}
{{- if $image.repository }}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "rollplex.podSecurity" -}}
runAsNonRoot: true
{{- range $field, $value := .Values.podSecurity }}
{{- if ne $value nil }}
{{ $field }}: {{ int64 $value }}
{{- end }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "rollplex.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What the operator does with jobs and their children; nothing here reads secrets or changes a pod that exists. */}}
{{- define "rollplex.jobRules" -}}
- apiGroups: [rollplex.io]
  resources: [rollplexjobs]
  verbs: [get, list, watch, delete]  # runPolicy.ttlSecondsAfterFinished
- apiGroups: [rollplex.io]
  resources: [rollplexjobs/status]
  verbs: [update]
# owner references that hold their owner back need it where OwnerReferencesPermissionEnforcement is on (OpenShift)
- apiGroups: [rollplex.io]
  resources: [rollplexjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [scheduling.k8s.io, scheduling.x-k8s.io, scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{- define "rollplex.clusterReads" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
- apiGroups: [resource.k8s.io]
  resources: [deviceclasses]
  verbs: [list]
{{- end }}
