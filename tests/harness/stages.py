"""What kwok, in the place of kubelets, does to pods and nodes: its stages, written as Python.

kwok watches pods and nodes; whenever one changes it looks for the stage whose selector matches and,
after the stage's delay, applies the stage's patch. So the stages below are the edges of a state
machine. Three things keep it exact:

- For each state at most one stage matches (kwok would choose by chance among several).
- What a test asks for is a *state*, written as annotations (`behaviour`, `crashes`, ...), never a
  command that could run twice: "has crashed 2 times" and not "crash now". The same annotations work
  in a pod template and on a live pod.
- Each patch names uid and resourceVersion of the object that was looked at: a patch that comes too
  late is refused (409), not applied to a successor of the same name.

A pod goes Pending -> Running, not ready -> Ready, as under a kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Stage: TypeAlias = dict[str, Any]

PREFIX = "harness.shardwright.io/"

# Annotations of a pod. Durations are seconds, "2s", and are counted in whole seconds.
BEHAVIOUR = f"{PREFIX}behaviour"
START_AFTER = f"{PREFIX}start-after"  # Pending, ContainerCreating for so long: a slow pull
# Running, not ready for so long, after each start of the containers: a slow load
READY_AFTER = f"{PREFIX}ready-after"
# a crash (or fail) comes so long after the start of the container
CRASH_AFTER = f"{PREFIX}crash-after"
BACK_OFF = f"{PREFIX}back-off"  # crash-loop: how long each CrashLoopBackOff lasts
# a deleted pod takes so long to end, but never longer than its grace period
STOP_AFTER = f"{PREFIX}stop-after"
COMPLETE_AFTER = f"{PREFIX}complete-after"  # pods of Jobs, and behaviour complete
CRASHES = f"{PREFIX}crashes"  # crash, oom: how often the container shall have crashed in all
CONTAINER = f"{PREFIX}container"  # which container the behaviour is about; the first one by default
EXIT_CODE = f"{PREFIX}exit-code"
MESSAGE = f"{PREFIX}message"  # the termination message

# Annotation of a node and its pods: kwok leaves them alone. Written by nodes.py, see there.
KUBELET = f"{PREFIX}kubelet"
DEAD = "dead"

BEHAVIOURS = {
    "crash": (
        "the container ends with the exit code `crashes` times (once by default), each time "
        "the kubelet restarts it"
    ),
    "oom": "as crash, with exit code 137 and reason OOMKilled",
    "crash-loop": "the container ends again and again, with CrashLoopBackOff in between",
    "hang": "Running, but not Ready",
    "never-ready": "the same as hang, said of a pod that was never ready",
    "image-pull-backoff": "Pending, its containers waiting with ImagePullBackOff",
    "fail": "phase Failed, the container ended with the exit code",
    "evict": "phase Failed, reason Evicted, as the kubelet does under memory pressure",
    "complete": "phase Succeeded",
}

_CRASH_DELAY_MILLISECONDS = (
    200  # how long "terminated" is to be seen before the kubelet restarts the container
)
_DEFAULT_BACK_OFF = "2s"
_NODE_STATUS_SECONDS = (
    300  # with leases, kubelets too report an unchanged status every five minutes only
)


def write_config(
    path: Path, unmanaged_namespaces: Iterable[str], lease_duration_seconds: int
) -> None:
    """kwok's configuration file: its options, then all stages."""
    options = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {
            "cidr": "10.128.0.1/9",
            "manageAllNodes": True,
            "nodeLeaseDurationSeconds": lease_duration_seconds,
            "podPlayStageParallelism": 8,
            "nodePlayStageParallelism": 8,
            "nodeLeaseParallelism": 8,
            "podsOnNodeSyncParallelism": 8,
        },
    }
    nodes = node_stages(max(_NODE_STATUS_SECONDS, lease_duration_seconds))
    path.write_text(
        yaml.safe_dump_all([options, *nodes, *pod_stages(unmanaged_namespaces)], sort_keys=False)
    )


def node_stages(status_seconds: int = _NODE_STATUS_SECONDS) -> list[Stage]:
    """Nodes become Ready at once and stay so, while their kubelet lives; it reports that again
    after so many seconds.
    """
    milliseconds = status_seconds * 1000
    alive = f'(.metadata.annotations // {{}})["{KUBELET}"] != "{DEAD}"'
    not_ready = '[.status.conditions[]? | select(.type == "Ready" and .status == "True")] == []'
    return [
        _stage(
            "node-initialize", "Node", f"{alive} and ({not_ready})", _status_patch(_NODE_INITIALIZE)
        ),
        _stage(
            "node-heartbeat",
            "Node",
            f"{alive} and ({not_ready} | not)",
            _status_patch(_NODE_HEARTBEAT),
            {
                "durationMilliseconds": milliseconds,
                "jitterDurationMilliseconds": milliseconds + 10_000,
            },
        ),
    ]


def pod_stages(unmanaged_namespaces: Iterable[str]) -> list[Stage]:
    """The life of a pod. In unmanaged namespaces nothing but the deletion is played: there nothing
    looks ready that is not.
    """
    ignored = (
        " and ".join(f'.metadata.namespace != "{namespace}"' for namespace in unmanaged_namespaces)
        or "true"
    )

    def stage(name: str, when: str, status: str, delay: dict[str, Any] | None = None) -> Stage:
        played = (
            f"{_JQ_DEFINITIONS} alive and ({ignored}) and .metadata.deletionTimestamp == null "
            f"and ({when})"
        )
        return _stage(f"pod-{name}", "Pod", played, _status_patch(_PRELUDE + status), delay)

    pulling = f'(note("{START_AFTER}") != null or behaviour == "image-pull-backoff")'
    crashing = (
        f'((behaviour == "crash" or behaviour == "oom") and restarts < (note("{CRASHES}") // '
        '"1" | tonumber))'
    )
    ending = (
        '(behaviour == "fail" or behaviour == "evict" or behaviour == "crash-loop" or completing)'
    )
    silent = '(behaviour == "hang" or behaviour == "never-ready")'

    return [
        stage(
            "pull",
            '.status.phase == "Pending" and behaviour != "evict" and (.status.containerStatuses '
            f"| not) and {pulling}",
            _PULL,
        ),
        stage(
            "start",
            '.status.phase == "Pending" and behaviour != "evict" and behaviour != '
            '"image-pull-backoff" '
            f"and (.status.containerStatuses or ({pulling} | not))",
            _START,
            _after(START_AFTER, "scheduled_at"),
        ),
        stage(
            "ready",
            f'.status.phase == "Running" and all_running and (ready | not) and ({silent} or '
            f"{crashing}"
            f" or {ending} | not)",
            _READY,
            _after(READY_AFTER, "started_at"),
        ),
        stage("hang", f'.status.phase == "Running" and all_running and ready and {silent}', _HANG),
        stage(
            "crash",
            f'.status.phase == "Running" and all_running and ({crashing} or behaviour == '
            '"crash-loop")',
            _CRASH,
            _after(CRASH_AFTER, "started_at"),
        ),
        stage(
            "restart",
            '.status.phase == "Running" and terminated and restartable and behaviour != '
            '"crash-loop"',
            _RESTART,
            {"durationMilliseconds": _CRASH_DELAY_MILLISECONDS},
        ),
        stage(
            "back-off",
            '.status.phase == "Running" and terminated and restartable and behaviour == '
            '"crash-loop"',
            _BACK_OFF,
            {"durationMilliseconds": _CRASH_DELAY_MILLISECONDS},
        ),
        stage(
            "restart-after-back-off",
            '.status.phase == "Running" and .status.containerStatuses != null and (all_running | '
            "not) and (terminated | not)",
            _RESTART,
            {
                "durationFrom": {
                    "jq": {
                        "expression": f'.metadata.annotations["{BACK_OFF}"] // "{_DEFAULT_BACK_OFF}"'
                    }
                }
            },
        ),
        stage(
            "fail",
            '.status.phase == "Running" and ((behaviour == "fail" and all_running) or (terminated '
            "and (restartable | not)))",
            _FAIL,
            _after(CRASH_AFTER, "started_at"),
        ),
        stage(
            "evict",
            '(.status.phase == "Running" or .status.phase == "Pending") and behaviour == "evict"',
            _EVICT,
        ),
        stage(
            "complete",
            '.status.phase == "Running" and all_running and completing',
            _COMPLETE,
            _after(COMPLETE_AFTER, "started_at"),
        ),
        _stage(
            "pod-delete",
            "Pod",
            f"{_JQ_DEFINITIONS} alive and .metadata.deletionTimestamp != null",
            {"delete": True},
            _STOP_DELAY,
        ),
    ]


# jq: what the selectors and delays ask of a pod.
_JQ_DEFINITIONS = f"""
def note($name): (.metadata.annotations // {{}})[$name];
def alive: note("{KUBELET}") != "{DEAD}";
def behaviour: note("{BEHAVIOUR}") // "";
def target: note("{CONTAINER}") // .spec.containers[0].name;
def mine: target as $name | .status.containerStatuses // [] | map(select(.name == $name)) | .[0] // {{}};
def restarts: mine.restartCount // 0;
def terminated: mine.state.terminated != null;
def all_running: (.status.containerStatuses // []) as $all | ($all | length) > 0 and ($all | all(.state.running != null));
def ready: [.status.conditions[]? | select(.type == "Ready" and .status == "True")] != [];
def restartable: (.spec.restartPolicy // "Always") as $policy
    | $policy == "Always" or ($policy == "OnFailure" and mine.state.terminated.exitCode != 0);
def completing: behaviour == "complete"
    or (behaviour == "" and ([.metadata.ownerReferences[]? | select(.kind == "Job")] != []));
def scheduled_at: [.status.conditions[]? | select(.type == "PodScheduled")][0].lastTransitionTime // .metadata.creationTimestamp;
def started_at: [.status.containerStatuses[]? | .state.running.startedAt // empty] | max;
def seconds: rtrimstr("s") | tonumber;
"""


def _after(annotation: str, since: str) -> dict[str, Any]:
    """A delay by annotation, counted from a fixed moment: other changes of the pod must not start
    it anew.

    Kubernetes keeps whole seconds, so one is added: it lasts at least as long as it says. Without
    the annotation: no delay.
    """
    moment = (
        f'note("{annotation}") as $wait | if $wait then ({since} | fromdate) + 1 + ($wait | '
        'seconds) | todate else "0s" end'
    )
    return {"durationFrom": {"jq": {"expression": f"{_JQ_DEFINITIONS} {moment}"}}}


# deletionTimestamp is the request's time + grace; a container that handles SIGTERM ends before
# that.
_STOP_DELAY = {
    "durationFrom": {
        "jq": {
            "expression": f"""{_JQ_DEFINITIONS}
note("{STOP_AFTER}") as $wait | (.metadata.deletionGracePeriodSeconds // 0) as $grace
| if $wait then (.metadata.deletionTimestamp | fromdate) - $grace + ([$grace, ($wait | seconds)] | min) | todate else "0s" end"""
        }
    }
}


def _stage(
    name: str, kind: str, when: str, step: dict[str, Any], delay: dict[str, Any] | None = None
) -> Stage:
    spec: Stage = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {
            "matchExpressions": [{"jq": {"key": when, "operator": "In", "values": ["true"]}}]
        },
        "steps": [step],
    }
    if delay:
        spec["delay"] = delay
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": spec,
    }


def _status_patch(template: str) -> dict[str, Any]:
    return {
        "patch": {
            "subresource": "status",
            "type": "strategic",
            "template": _OPTIMISTIC_LOCK + template,
        }
    }


# Go templates: the patches.

_OPTIMISTIC_LOCK = """
metadata:
  uid: {{ .metadata.uid | Quote }}
  resourceVersion: {{ .metadata.resourceVersion | Quote }}
"""

_NODE_INITIALIZE = """
{{ $now := Now }}
{{ $info := or .status.nodeInfo dict }}
{{ $labels := or .metadata.labels dict }}
status:
  conditions:
  {{ range NodeConditions }}
  - type: {{ .type | Quote }}
    status: {{ .status | Quote }}
    reason: {{ .reason | Quote }}
    message: {{ .message | Quote }}
    lastHeartbeatTime: {{ $now | Quote }}
    lastTransitionTime: {{ $now | Quote }}
  {{ end }}
  nodeInfo:
    architecture: {{ or $info.architecture (index $labels "kubernetes.io/arch") "amd64" | Quote }}
    operatingSystem: linux
    kubeletVersion: {{ or $info.kubeletVersion Version | Quote }}
    kubeProxyVersion: {{ or $info.kubeProxyVersion "" | Quote }}
    containerRuntimeVersion: {{ or $info.containerRuntimeVersion "kwok" | Quote }}
    kernelVersion: {{ or $info.kernelVersion "kwok" | Quote }}
    osImage: {{ or $info.osImage "kwok" | Quote }}
    bootID: {{ or $info.bootID "" | Quote }}
    machineID: {{ or $info.machineID "" | Quote }}
    systemUUID: {{ or $info.systemUUID "" | Quote }}
"""

_NODE_HEARTBEAT = """
{{ $now := Now }}
status:
  conditions:
  {{ range .status.conditions }}
  - type: {{ .type | Quote }}
    lastHeartbeatTime: {{ $now | Quote }}
  {{ end }}
"""

# What the annotations say.
_PRELUDE = """
{{ $now := Now }}
{{ $pod := . }}
{{ $notes := or .metadata.annotations dict }}
{{ $behaviour := or (index $notes "harness/behaviour") "" }}
{{ $target := or (index $notes "harness/container") (index .spec.containers 0).name }}
{{ $oom := eq $behaviour "oom" }}
{{ $code := atoi (or (index $notes "harness/exit-code") (ternary "137" "1" $oom)) }}
{{ $reason := ternary "OOMKilled" (ternary "Completed" "Error" (eq $code 0)) $oom }}
{{ $message := or (index $notes "harness/message") "" }}
""".replace("harness/", PREFIX)


def _conditions(*, ready: bool, reason: str = "") -> str:
    """Ready and ContainersReady, which in the absence of readiness gates are the same."""
    why = (
        f'reason: {reason}, message: "containers with unready status"'
        if reason
        else "reason: null, message: null"
    )
    common = f'status: "{ready}", lastTransitionTime: {{{{ $now | Quote }}}}, {why}'
    return f"""
status:
  conditions:
  - {{type: Ready, {common}}}
  - {{type: ContainersReady, {common}}}
"""


_NOT_READY = _conditions(ready=False, reason="ContainersNotReady")

_PULL = (
    _NOT_READY
    + """
  containerStatuses:
  {{ range .spec.containers }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    ready: false
    started: false
    restartCount: 0
    state: {waiting: {reason: {{ ternary "ImagePullBackOff" "ContainerCreating" (eq $behaviour "image-pull-backoff") }}}}
  {{ end }}
"""
)

_START = (
    _NOT_READY
    + """
  - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}, reason: null, message: null}
  phase: Running
  startTime: {{ $now | Quote }}
  {{ with NodeIPsWith .spec.nodeName }}
  hostIP: {{ index . 0 | Quote }}
  hostIPs: [{ip: {{ index . 0 | Quote }}}]
  {{ end }}
  {{ with PodIPsWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace }}
  podIP: {{ index . 0 | Quote }}
  podIPs: [{ip: {{ index . 0 | Quote }}}]
  {{ end }}
  {{ with .spec.initContainers }}
  initContainerStatuses:
  {{ range . }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    ready: true
    restartCount: 0
    {{ if eq (or .restartPolicy "") "Always" }}
    started: true
    state: {running: {startedAt: {{ $now | Quote }}}}
    {{ else }}
    started: false
    state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
    {{ end }}
  {{ end }}
  {{ end }}
  containerStatuses:
  {{ range .spec.containers }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    containerID: {{ printf "kwok://%s-%s-0" $pod.metadata.uid .name | Quote }}
    ready: false
    started: true
    restartCount: 0
    state: {running: {startedAt: {{ $now | Quote }}}}
  {{ end }}
"""
)


def _each_container(changes: str) -> str:
    """All container statuses (the API takes the list as a whole), after `changes` to each of
    them.
    """
    return f"""
  {{{{ if .status.containerStatuses }}}}
  containerStatuses:
  {{{{ range .status.containerStatuses }}}}
  {changes}
  - {{{{ YAML . 2 }}}}
  {{{{ end }}}}
  {{{{ end }}}}
"""


_SET_TERMINATED = """
  {{ $ended := dict "exitCode" $code "reason" $reason "message" $message }}
  {{ if .state.running }}{{ $_ := set $ended "startedAt" .state.running.startedAt }}{{ end }}
  {{ if .containerID }}{{ $_ := set $ended "containerID" .containerID }}{{ end }}
  {{ $_ := set $ended "finishedAt" $now }}
  {{ $_ := set . "state" (dict "terminated" $ended) }}
  {{ $_ := set . "ready" false }}
  {{ $_ := set . "started" false }}
"""

_READY = _conditions(ready=True) + _each_container('{{ $_ := set . "ready" true }}')

_HANG = _NOT_READY + _each_container(
    '{{ if eq .name $target }}{{ $_ := set . "ready" false }}{{ end }}'
)

_CRASH = _NOT_READY + _each_container("{{ if eq .name $target }}" + _SET_TERMINATED + "{{ end }}")

_RESTART = _NOT_READY + _each_container(
    """
  {{ if not .state.running }}
  {{ $count := add1 (printf "%v" .restartCount | atoi) }}
  {{ if .state.terminated }}{{ $_ := set . "lastState" (dict "terminated" .state.terminated) }}{{ end }}
  {{ $_ := set . "state" (dict "running" (dict "startedAt" $now)) }}
  {{ $_ := set . "restartCount" $count }}
  {{ $_ := set . "containerID" (printf "kwok://%s-%s-%d" $pod.metadata.uid .name $count) }}
  {{ $_ := set . "started" true }}
  {{ end }}
"""
)

_BACK_OFF = _NOT_READY + _each_container(
    """
  {{ if .state.terminated }}
  {{ $_ := set . "lastState" (dict "terminated" .state.terminated) }}
  {{ $waiting := dict "reason" "CrashLoopBackOff" "message" (printf "back-off restarting failed container %s" .name) }}
  {{ $_ := set . "state" (dict "waiting" $waiting) }}
  {{ end }}
"""
)

# The container that is meant ends with the code, the others because the pod goes.
_FAIL = (
    _conditions(ready=False, reason="PodFailed")
    + "  phase: Failed\n"
    + _each_container(
        """
  {{ if not .state.terminated }}
  {{ if ne .name $target }}{{ $code = 137 }}{{ $reason = "Error" }}{{ end }}
"""
        + _SET_TERMINATED
        + "{{ end }}"
    )
)

_EVICT = (
    _conditions(ready=False, reason="PodFailed")
    + """
  - type: DisruptionTarget
    status: "True"
    reason: TerminationByKubelet
    message: "The node was low on resource: memory."
    lastTransitionTime: {{ $now | Quote }}
  phase: Failed
  reason: Evicted
  message: "The node was low on resource: memory."
  {{ $code = 137 }}
  {{ $reason = "Error" }}
"""
    + _each_container(_SET_TERMINATED)
)

_COMPLETE = (
    _conditions(ready=False, reason="PodCompleted")
    + '  phase: Succeeded\n  {{ $code = 0 }}\n  {{ $reason = "Completed" }}\n'
    + _each_container(_SET_TERMINATED)
)
