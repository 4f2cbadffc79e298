"""Let things happen to running pods: crashes, hangs, evictions, by the annotations that stages.py
describes.
"""

from __future__ import annotations

from tests.harness import stages
from tests.harness.api import Api, Manifest


class Pods:
    """Each call states what shall be so and returns; kwok makes it so within a moment. Wait for
    what you expect of it.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, namespace: str, name: str) -> Manifest:
        pod: Manifest = self._api.get(_path(namespace, name))
        return pod

    def list(self, namespace: str, selector: str = "") -> list[Manifest]:
        pods: list[Manifest] = self._api.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector
        )["items"]
        return pods

    def crash(
        self, namespace: str, name: str, exit_code: int = 1, message: str = "", container: str = ""
    ) -> None:
        """The container ends with `exit_code` once more, and the kubelet restarts it (unless
        restartPolicy forbids).
        """
        crashes = self._crashes(namespace, name, container) + 1
        self._behave(
            namespace,
            name,
            "crash",
            exit_code=exit_code,
            message=message,
            container=container,
            crashes=crashes,
        )

    def oom(self, namespace: str, name: str, container: str = "") -> None:
        """The container is killed for memory (OOMKilled, 137), and the kubelet restarts it."""
        crashes = self._crashes(namespace, name, container) + 1
        self._behave(namespace, name, "oom", container=container, crashes=crashes)

    def crash_loop(
        self, namespace: str, name: str, exit_code: int = 1, message: str = "", container: str = ""
    ) -> None:
        """The container ends again and again, with CrashLoopBackOff in between, until `recover`."""
        self._behave(
            namespace, name, "crash-loop", exit_code=exit_code, message=message, container=container
        )

    def hang(self, namespace: str, name: str, container: str = "") -> None:
        """The pod stays Running and is not Ready, until `recover`."""
        self._behave(namespace, name, "hang", container=container)

    def fail(
        self, namespace: str, name: str, exit_code: int = 1, message: str = "", container: str = ""
    ) -> None:
        """The pod ends for good: phase Failed."""
        self._behave(
            namespace, name, "fail", exit_code=exit_code, message=message, container=container
        )

    def evict_by_kubelet(self, namespace: str, name: str) -> None:
        """The kubelet evicts the pod for memory pressure: phase Failed, reason Evicted. No
        disruption budget is asked.
        """
        self._behave(namespace, name, "evict")

    def recover(self, namespace: str, name: str) -> None:
        """From now on the pod behaves well: what hangs becomes Ready, what crashes comes up."""
        self._annotate(namespace, name, {stages.BEHAVIOUR: None})

    def _crashes(self, namespace: str, name: str, container: str) -> int:
        """How often it has crashed so far: restarts, and the end that no restart has followed
        yet.
        """
        pod = self.get(namespace, name)
        target = container or pod["spec"]["containers"][0]["name"]
        for status in pod["status"].get("containerStatuses", []):
            if status["name"] == target:
                return int(status["restartCount"]) + ("terminated" in status["state"])
        return 0

    def _behave(
        self,
        namespace: str,
        name: str,
        behaviour: str,
        *,
        exit_code: int | None = None,
        message: str = "",
        container: str = "",
        crashes: int | None = None,
    ) -> None:
        notes = {
            stages.BEHAVIOUR: behaviour,
            stages.EXIT_CODE: None if exit_code is None else str(exit_code),
            stages.MESSAGE: message or None,
            stages.CONTAINER: container or None,
            stages.CRASHES: None if crashes is None else str(crashes),
        }
        self._annotate(namespace, name, notes)

    def _annotate(self, namespace: str, name: str, annotations: dict[str, str | None]) -> None:
        self._api.patch(_path(namespace, name), {"metadata": {"annotations": annotations}})


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
