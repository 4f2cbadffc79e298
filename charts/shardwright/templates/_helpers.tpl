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
