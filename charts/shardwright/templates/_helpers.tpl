{{- /* The name of everything: a DNS label that starts with a letter whatever the release is called, with room for "-catalogue". */ -}}
{{- define "shardwright.name" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := hasPrefix .Chart.Name $release | ternary $release (printf "%s-%s" .Chart.Name $release) -}}
{{- $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "shardwright.selector" -}}
app.kubernetes.io/name: shardwright-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "shardwright.labels" -}}
{{ include "shardwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: shardwright
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "shardwright.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* What a schema cannot say: how the timings of the Lease stand to each other. */ -}}
{{- define "shardwright.checkLease" -}}
{{- if ge (int .renewDeadlineSeconds) (int .durationSeconds) -}}
{{- fail (printf "lease.renewDeadlineSeconds (%v) must be less than lease.durationSeconds (%v): a leader must stop before others may start" .renewDeadlineSeconds .durationSeconds) -}}
{{- end -}}
{{- if gt (mul 2 .retrySeconds) (int64 .renewDeadlineSeconds) -}}
{{- fail (printf "lease.retrySeconds (%v) must be at most half of lease.renewDeadlineSeconds (%v): a leader must be able to try twice before its deadline" .retrySeconds .renewDeadlineSeconds) -}}
{{- end -}}
{{- end -}}

{{- /* A policy that is about the operator's own requests, and refuses what it cannot judge. */ -}}
{{- define "shardwright.bindsItself" -}}
failurePolicy: Fail
matchConditions:
  - name: of-the-operator
    expression: request.userInfo.username == {{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "shardwright.name" .) | squote }}
{{- end -}}

{{- define "shardwright.notInSystemNamespaces" -}}
- expression: "!request.namespace.startsWith('kube-') && request.namespace != {{ .Release.Namespace | squote }}"
  message: the operator writes nothing in namespaces of the system, or in its own
  reason: Forbidden
{{- end -}}
