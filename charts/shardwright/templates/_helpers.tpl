{{- /* The name of everything: a DNS label that starts with a letter whatever the release is called, with room for "-catalogue". */ -}}
{{- define "shardwright.name" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- $name := hasPrefix .Chart.Name $release | ternary $release (printf "%s-%s" .Chart.Name $release) -}}
{{- .Values.fullnameOverride | default $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- /*
Every template begins with this. `helm upgrade --reuse-values` brings the values of the release before, and not this chart's:
what they do not know is as this chart delivers it. What `null` has emptied stays empty, an admission above all: Helm has dropped
it, but the values of every release know it.
*/ -}}
{{- define "shardwright.values" -}}
{{- $delivered := omit (.Files.Get "files/values.json" | fromJson) "resources" "podSecurityContext" "securityContext" "topologySpreadConstraints" -}}
{{- range list "admittedImages" "admittedModels" "admittedRuntimeClasses" -}}
{{- $_ := set $delivered.policy . list -}}
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

{{- /* What the rules of pods read. */ -}}
{{- define "shardwright.podVariables" -}}
- name: pod
  expression: object.spec.template.spec
- name: kept
  expression: oldObject != null && object.spec.template == oldObject.spec.template
- name: containers
  expression: variables.pod.containers + variables.pod.?initContainers.orValue([])
- name: probes
  expression: "variables.containers.map(c, ['livenessProbe', 'readinessProbe', 'startupProbe'].filter(p, p in c).map(p, c[p]))"
- name: devices
  expression: >-
    has(variables.pod.resourceClaims) || variables.containers.exists(c, c.?resources.?limits.orValue({}).exists(r,
    !(r in ['cpu', 'ephemeral-storage', 'memory'])))
- name: locksMemory
  expression: variables.containers.exists(c, 'IPC_LOCK' in c.?securityContext.?capabilities.?add.orValue([]))
{{- end -}}

{{- /* What holds of every pod of the operator. Fields are those that it renders and those that the API server adds, so that a field that Kubernetes gets is closed. */ -}}
{{- define "shardwright.podRules" -}}
- expression: >-
    variables.kept || variables.pod.all(f, f in {{ toJson .fields.pod }}) &&
    variables.pod.?securityContext.orValue({}).all(f, f in {{ toJson .fields.podSecurity }}) &&
    variables.pod.?resourceClaims.orValue([]).all(c, c.all(f, f in ['name', 'resourceClaimTemplateName']))
  message: pods of the operator have the fields that it renders, and so nothing of their host
  reason: Forbidden
- expression: >-
    variables.kept || variables.containers.all(c, c.all(f, f in {{ toJson .fields.container }}) &&
    c.?securityContext.orValue({}).all(f, f in {{ toJson .fields.containerSecurity }}) &&
    c.?ports.orValue([]).all(p, p.all(f, f in ['containerPort', 'name', 'protocol'])) &&
    c.?lifecycle.orValue({}).all(f, f == 'preStop') &&
    c.?lifecycle.?preStop.orValue({}).all(f, f in ['exec', 'sleep'])) &&
    variables.probes.all(those, those.all(p, p.all(f, f in {{ toJson .fields.probe }}) &&
    p.?tcpSocket.orValue({}).all(f, f == 'port')))
  message: containers of the operator have the fields that it renders, and the kubelet asks them alone
  reason: Forbidden
- expression: >-
    variables.kept || variables.containers.all(c, !c.?securityContext.?allowPrivilegeEscalation.orValue(true) &&
    c.?securityContext.?capabilities.?add.orValue([]).all(name, name == 'IPC_LOCK') &&
    c.?securityContext.?capabilities.?drop.orValue([]).exists(name, name == 'ALL')) &&
    (!variables.locksMemory || {{ .locking }})
  message: containers of the operator have no capability, but for IPC_LOCK where it is admitted
  reason: Forbidden
- expression: >-
    variables.kept || variables.pod.?securityContext.?seccompProfile.?type.orValue('') == 'RuntimeDefault' &&
    (variables.locksMemory || variables.pod.?securityContext.?runAsUser.orValue(0) != 0) &&
    [variables.pod.?securityContext.?runAsGroup, variables.pod.?securityContext.?fsGroup].all(g, g.orValue(0) != 0)
  message: pods of the operator run under the runtime's seccomp profile, and as root only to lock memory
  reason: Forbidden
- expression: variables.kept || !variables.pod.?priorityClassName.orValue('').startsWith('system-')
  message: pods of the operator have no priority of the system
  reason: Forbidden
{{- end -}}

{{- /* Names that an administrator admits by namespace, as a list of `namespace/name` for CEL; `namespace/` says that one is named, `/name` is for all. */ -}}
{{- define "shardwright.admittedNames" -}}
{{- $found := list -}}
{{- range $namespace, $names := .named -}}
{{- $found = append $found (printf "%s/" $namespace) -}}
{{- range $names -}}
{{- $found = append $found (printf "%s/%s" $namespace .) -}}
{{- end -}}
{{- end -}}
{{- range compact .always -}}
{{- $found = append $found (printf "/%s" .) -}}
{{- end -}}
{{ toJson $found }}
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

{{- /* Which installation this is: what its claims say, and what it goes by in them. */ -}}
{{- define "shardwright.installation" -}}
{{ .Release.Namespace }}/{{ .Release.Name }}
{{- end -}}

{{- define "shardwright.claims" -}}
- {{ list "shardwright-nodes" .Values.nodeSet | compact | join "-" }}
{{- if not .Values.watchNamespaces }}
- shardwright-namespaces
{{- end }}
{{- range .Values.watchNamespaces }}
- shardwright-namespace-{{ . }}
{{- end -}}
{{- end -}}

{{- /* What a schema cannot say of namespaces, and what only the cluster can: who else watches them. Without a cluster nobody else is seen. */ -}}
{{- define "shardwright.checkNamespaces" -}}
{{- range .Values.watchNamespaces -}}
{{- if or (eq . $.Release.Namespace) (hasPrefix "kube-" .) -}}
{{- fail (printf "watchNamespaces: the operator writes nothing in %s, a namespace of the system or its own; name namespaces of models" .) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.watchNamespaces .Values.clusterPods) -}}
{{- fail "clusterPods is false and watchNamespaces is empty: an operator of all namespaces sees all pods; name the namespaces, or leave clusterPods true" -}}
{{- end -}}
{{- $own := include "shardwright.installation" . -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- $theirs := dig "annotations" "shardwright.io/installation" "" .metadata -}}
{{- if and $theirs (ne $theirs $own) -}}
{{- if eq .metadata.name "shardwright-namespaces" -}}
{{- fail (printf "installation %s watches all namespaces: have each watch its own with watchNamespaces, it first" $theirs) -}}
{{- end -}}
{{- if not $.Values.watchNamespaces -}}
{{- fail (printf "installation %s is there, too: name the namespaces of this one in watchNamespaces, and give it nodes of its own with nodeSet" $theirs) -}}
{{- end -}}
{{- if has .metadata.name (include "shardwright.claims" $ | fromYamlArray) -}}
{{- if hasPrefix "shardwright-namespace-" .metadata.name -}}
{{- fail (printf "installation %s watches namespace %s: have each watch its own with watchNamespaces" $theirs (trimPrefix "shardwright-namespace-" .metadata.name)) -}}
{{- end -}}
{{- fail (printf "installation %s plans on the same nodes: label nodes with shardwright.io/node-set, and name that set in nodeSet" $theirs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the operator may do that no namespace bounds. */ -}}
{{- define "shardwright.clusterRights" -}}
# What hardware there is{{ if .Values.clusterPods }}, and which pods of anybody hold GPUs{{ end }}; by name before a group leaves a node{{ if .Values.clusterPods }}, or is ended{{ end }}.
- apiGroups: [""]
  resources: [nodes{{ if .Values.clusterPods }}, pods{{ end }}]
  verbs: [get, list, watch]
# Who goes first of those that wait for GPUs.
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
# Which installation nodes and namespaces are for (claims.yaml).
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: {{ concat (include "shardwright.claims" . | fromYamlArray) (list "shardwright-namespaces") | uniq | toJson }}
  verbs: [list]
{{- if .Values.dra.enabled }}
# GPUs that DRA drivers publish, how pods ask for them{{ if .Values.clusterPods }}, and which claims of anybody hold some{{ end }}.
- apiGroups: [resource.k8s.io]
  resources: [resourceslices, deviceclasses{{ if .Values.clusterPods }}, resourceclaims{{ end }}]
  verbs: [list, watch]
{{- end }}
{{- end -}}

{{- /* What it may do in the namespaces that it watches, or in all. */ -}}
{{- define "shardwright.namespaceRights" -}}
# What is wanted, and what was decided.
- apiGroups: [shardwright.io]
  resources: [shardedmodels]
  verbs: [get, list, watch]
- apiGroups: [shardwright.io]
  resources: [shardedmodels/status]
  verbs: [patch]
- apiGroups: [shardwright.io]
  resources: [shardedmodels/finalizers]
  verbs: [update]
{{- if .Values.watchNamespaces }}
# Its pods; by name before a group is ended.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}
# Pods of a group that has failed, to spare it their long grace; by uid, after its StatefulSet was scaled to zero.
- apiGroups: [""]
  resources: [pods]
  verbs: [delete]
# Only with dryRun: whether Pod Security would let the pods of a new template in. StatefulSets make them.
- apiGroups: [""]
  resources: [pods]
  verbs: [create]
# What a plan turns into, in the namespace of its ShardedModel.
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
# The token of a model on several nodes, and its ssh key with TensorRT-LLM: made and never read again.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.router.image }}
# The router of a model with spec.routing.mode: Router.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.inferencePools.enabled }}
# What gateways ask by an endpoint picker, of a model with spec.routing.mode: InferencePool.
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
# What a model ran when all of it served: made once, read when it is restored, the fourth last deleted.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, create, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Who reaches the pods of a model; also deleted, where networkPolicy.enabled is turned off.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
# NVLink between nodes of a GB200 or GB300 rack; where NVIDIA's DRA driver is not installed, there is no such kind.
- apiGroups: [resource.nvidia.com]
  resources: [computedomains]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.prometheus.url }}
# By which KEDA chooses the number of groups; that number is handed over to it once.
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [shardwright.io]
  resources: [shardedmodels/scale]
  verbs: [patch]
{{- end }}
{{- if .Values.dra.enabled }}
# What pods claim GPUs by that a DRA driver serves, where no extended resource stands for them.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.watchNamespaces }}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims]
  verbs: [list, watch]
{{- end }}
{{- end }}
# What pods a namespace may have: GPUs are kept only for those that it lets in.
- apiGroups: [""]
  resources: [resourcequotas, limitranges]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if .Values.configFetch.enabled }}
# What reads the config of a model that nobody has given; it ends, and goes, by itself.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create]
{{- end }}
{{- with .Values.schedulers }}
# What tells schedulers that the pods of a group belong together.
- apiGroups:
    {{- range . }}
    - {{ get (dict "Native" "scheduling.k8s.io" "Coscheduling" "scheduling.x-k8s.io") . }}
    {{- end }}
  resources: [podgroups]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- end -}}
