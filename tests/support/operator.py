"""The operator as a process of its own against the loopback control plane, to be killed and started
at will.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.harness import leases
from tests.harness.api import Api
from tests.harness.controlplane import ControlPlane
from tests.harness.deployed import NAMED, leads
from tests.harness.waiting import wait_for
from tests.support.builders_chart import CHART
from tests.support.keys import SIGNING_KEY

ROOT = Path(__file__).parents[2]
SYSTEM = leases.SYSTEM
OPERATOR_USER = f"system:serviceaccount:{SYSTEM}:shardwright"
AS_INSTALLED = {"MALLOC_ARENA_MAX": "2"}
"""What the chart sets in the environment beside the pod's names (`tests/chart/test_rendering.py`):
memory is measured with it.
"""


def install_chart(control_plane: ControlPlane, *options: str) -> None:
    """Install it, and wait until the API server takes an object that a ShardedModel owns, and from
    the operator no other.

    Its admission looks up the owner's kind in a discovery of its own, which hears of a new CRD
    seconds after the CRD is served; until then each child is refused as forbidden. Of new policies
    it hears a moment later, too.
    """
    control_plane.helm(
        "install",
        "shardwright",
        str(CHART),
        "--namespace",
        SYSTEM,
        "--create-namespace",
        *NAMED,
        *options,
    )
    owner = {
        "apiVersion": "shardwright.io/v1alpha1",
        "kind": "ShardedModel",
        "name": "nobody",
        "uid": "nobody",
    }
    metadata = {
        "name": "nobody-plan",
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    create = (
        "create",
        "--dry-run=server",
        f"--as={OPERATOR_USER}",
        "--namespace=default",
        "--filename=-",
    )
    wait_for(
        lambda: control_plane.kubectl(*create, input=json.dumps(child)),
        60,
        "the API server to know the owner's kind",
    )
    orphan = json.dumps({**child, "metadata": {"name": "nobody-plan"}})
    told = "objects that a ShardedModel controls"
    wait_for(
        lambda: told in control_plane.kubectl(*create, input=orphan, check=False),
        60,
        "the policies to be in force",
    )


def operator_api(control_plane: ControlPlane) -> Api:
    """Return a client with a token of the operator's service account, as who steals it has one."""
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/shardwright/token"
    token = control_plane.api.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    return Api(control_plane.url, control_plane.ca_file, token)


class OperatorProcess:
    """One operator as the chart's service account; a context manager that kills it in the end."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *arguments: str,
        identity: str = "operator-a",
        account: str = "shardwright",
        server: str = "",
        pace: float = 1,
        program: tuple[str, ...] = ("shardwright.controller",),
        source: Path = ROOT / "operator",
    ) -> None:
        """Nothing runs yet; see `start`. The chart must be installed.

        `arguments` are added to the command line; `server` is another address under which it
        reaches the API server. Its clock runs `pace` times as fast as any other. `program` is what
        runs instead, a module and its first arguments. `source` is the folder of the package:
        another one is another release.
        """
        self._folder = tempfile.TemporaryDirectory(
            prefix=f"{identity}-"
        )  # what a killed process leaves goes with it
        keys = Path(self._folder.name) / "keys"
        keys.write_text(SIGNING_KEY)
        self.kubeconfig = (
            Path(self._folder.name) / "kubeconfig"
        )  # its own: another one may go by another address
        shared = control_plane.kubeconfig_for(SYSTEM, account).read_text()
        self.kubeconfig.write_text(shared.replace(control_plane.url, server) if server else shared)
        self._control_plane = control_plane
        self._source = source
        self.identity = identity
        self._arguments = [
            sys.executable,
            "-m",
            *(program if pace == 1 else ("tests.support.paced", str(pace))),
            f"--kubeconfig={self.kubeconfig}",
            f"--lease-namespace={SYSTEM}",
            f"--identity={identity}",
            "--port=0",
            "--health-port=0",
            f"--signing-keys-file={keys}",
            *arguments,
        ]
        self._log = Path(self._folder.name) / "log"
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            sys.stderr.write(f"\n--- log of the operator\n{self.logs()[-6000:]}\n")
            self._folder.cleanup()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        leases.give_up(self._control_plane.api, self.identity)
        if error is not None:
            sys.stderr.write(f"\n--- log of the operator\n{self.logs()[-6000:]}\n")
        self._folder.cleanup()

    def start(self, timeout: float = 90) -> Self:
        """Start it and wait until its caches are filled."""
        self.launch()
        wait_for(self._is_ready, timeout, "the operator to be ready")
        return self

    def launch(self) -> None:
        """Start it and wait for nothing."""
        environment = {
            **os.environ,
            **AS_INSTALLED,
            "PYTHONPATH": str(self._source),
            "TMPDIR": self._folder.name,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments, stdout=log, stderr=log, env=environment, cwd=ROOT
            )

    def kill(self) -> None:
        """SIGKILL, as an out-of-memory kill would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout: float = 15) -> int:
        """SIGTERM, as the kubelet would; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout)

    def running(self) -> int | None:
        """Return the process id, None where it has ended."""
        assert self._process is not None
        return None if self._process.poll() is not None else self._process.pid

    def peak_bytes(self) -> int:
        """Return the most memory that it and its worker have ever had, each counted at its own
        peak.
        """
        pid = self.running()
        children = (task / "children" for task in Path(f"/proc/{pid}/task").iterdir())
        pids = [pid, *(int(child) for file in children for child in file.read_text().split())]
        statuses = (Path(f"/proc/{one}/status").read_text().splitlines() for one in pids)
        return sum(
            1024 * int(line.split()[1])
            for lines in statuses
            for line in lines
            if line.startswith("VmHWM:")
        )

    def logs(self) -> str:
        """Return what it has logged; nothing once it was put away, as where taking a test down has
        failed.
        """
        return self._log.read_text() if self._log.exists() else ""

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one of its HTTP endpoints; (0, error) when it does not
        answer.
        """
        try:
            port = self._ports()[path == "/metrics"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, IndexError) as error:
            return 0, str(error)

    def scraped_at(self) -> str:
        """Return host and port of its metrics."""
        return f"127.0.0.1:{self._ports()[1]}"

    def _ports(self) -> tuple[str, str]:
        found: list[tuple[str, str]] = re.findall(
            r"listening on port (\d+) for probes, (\d+) for scrapes", self.logs()
        )
        return found[-1]

    def leads(self) -> bool:
        return leads(self.get("/metrics")[1])

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the operator has ended:\n{self.logs()[-3000:]}"
        return self.get("/readyz")[0] == 200


def operator_of(
    cluster: ControlPlane, folder: Path, deployment: str, identity: str = "operator"
) -> OperatorProcess:
    """Return the operator of an installation: with its account, and what its Deployment and its
    settings say of its scope.
    """
    pod = cluster.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{deployment}")["spec"][
        "template"
    ]["spec"]
    (container,) = pod["containers"]
    words = [
        word
        for word in container["args"]
        if re.match(r"--(installation|watch-namespaces|lease-name)=", word)
    ]
    settings = folder / f"{deployment}.json"
    settings.write_text(
        cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/configmaps/{deployment}-settings")["data"][
            "settings.json"
        ]
    )
    words += [f"--settings-file={settings}"]
    return OperatorProcess(
        cluster, *words, identity=f"{identity}-{deployment}", account=pod["serviceAccountName"]
    )
