{{- /* The name of everything: a DNS label that starts with a letter whatever the release is called, with room for "-catalogue". */ -}}
{{- define "shardwright.name" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := hasPrefix .Chart.Name $release | ternary $release (printf "%s-%s" .Chart.Name $release) -}}
{{- .Values.fullnameOverride | default $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- /*
Every template begins with this. `helm upgrade --reuse-values` brings the values of the release before, and not this chart's:
what they do not know is as this chart delivers it. What `null` has emptied stays empty, an admission above all: Helm has dropped
it, but the values know the ones that came with it.
*/ -}}
{{- define "shardwright.values" -}}
{{- $delivered := omit (.Files.Get "files/values.json" | fromJson) "resources" -}}
{{- $emptied := list "admittedRuntimeClasses" -}}
{{- $fitted := hasKey .Values "podLabels" -}}
{{- if or $fitted (hasKey .Values "lease") -}}
{{- $emptied = concat $emptied (list "admittedImages" "admittedModels") -}}
{{- end -}}
{{- if $fitted -}}
{{- $delivered = omit $delivered "podSecurityContext" "securityContext" -}}
{{- $emptied = append $emptied "topologySpreadConstraints" -}}
{{- end -}}
{{- range $emptied -}}
{{- $_ := set $delivered . list -}}
{{- end -}}
{{- include "shardwright.complete" (dict "values" .Values "delivered" $delivered) -}}
{{- end -}}

{{- define "shardwright.complete" -}}
{{- range $name, $delivered := .delivered -}}
{{- if not (hasKey $.values $name) -}}
{{- $_ := set $.values $name $delivered -}}
{{- else if and (kindIs "map" $delivered) (kindIs "map" (get $.values $name)) -}}
{{- include "shardwright.complete" (dict "values" (get $.values $name) "delivered" $delivered) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "shardwright.serviceAccountName" -}}
{{- if not (or .Values.serviceAccount.create .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is empty and serviceAccount.create is false: name the service account that the operator runs as, or let the chart make one" -}}
{{- end -}}
{{- .Values.serviceAccount.name | default (include "shardwright.name" .) -}}
{{- end -}}

{{- define "shardwright.selector" -}}
app.kubernetes.io/name: shardwright-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "shardwright.labels" -}}
{{ include "shardwright.labelsAnd" (list . dict) }}
{{- end -}}

{{- /* The labels of an object that has more of its own: [root, labels]. */ -}}
{{- define "shardwright.labelsAnd" -}}
{{- $root := index . 0 -}}
{{- $chart := dict
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/part-of" "shardwright"
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
-}}
{{ merge (include "shardwright.selector" $root | fromYaml) $chart (index . 1) $root.Values.commonLabels | toYaml }}
{{- end -}}

{{- define "shardwright.image" -}}
{{- $repository := .Values.image.repository -}}
{{- if not $repository -}}
{{- fail "image.repository is empty, and nobody has published an image of the operator: build one (make image), put it where the cluster pulls from, and name it, as in --set image.repository=registry.example/shardwright/operator" -}}
{{- end -}}
{{- with .Values.global.imageRegistry -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
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

{{- /* Whether policies are installed. The list of APIs that `helm template` has without a cluster has no kinds, and says nothing. */ -}}
{{- define "shardwright.bound" -}}
{{- $apis := .Capabilities.APIVersions -}}
{{- $served := or ($apis.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (not ($apis.Has "apps/v1/Deployment")) -}}
{{- if and .Values.admissionPolicies.enabled $served -}}true{{- end -}}
{{- end -}}

{{- /* A policy that is about the operator's own requests, and refuses what it cannot judge. */ -}}
{{- define "shardwright.bindsItself" -}}
failurePolicy: Fail
matchConditions:
  - name: of-the-operator
    expression: request.userInfo.username == {{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "shardwright.serviceAccountName" .) | squote }}
{{- end -}}

{{- define "shardwright.notInSystemNamespaces" -}}
- expression: "!request.namespace.startsWith('kube-') && request.namespace != {{ .Release.Namespace | squote }}"
  message: the operator writes nothing in namespaces of the system, or in its own
  reason: Forbidden
{{- end -}}

{{- /* A volume with a short-lived token that the kubelet renews; the automatic mount is off. */ -}}
{{- define "shardwright.credentials" -}}
- name: credentials
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end -}}
