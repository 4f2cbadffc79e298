"""Prometheus' own programs: those of the machine, or those of the distribution's package, unpacked
and not installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from tests.harness.build import cache_folder
from tests.harness.controlplane import free_port
from tests.harness.errors import HarnessError
from tests.harness.locking import locked
from tests.harness.processes import Companion
from tests.harness.waiting import wait_for

PACKAGE = "prometheus"  # Debian 12 and Ubuntu 24.04 have it; 19 MB


def program(name: str) -> Path:
    """Return `prometheus` or `promtool`, downloaded once where the machine has none.

    Raises:
        HarnessError: there is none, and no package manager that has it.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    folder = cache_folder().parent / PACKAGE
    unpacked = folder / "usr" / "bin" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock"), Console(stderr=True), "downloading Prometheus"):
        if not unpacked.is_file():
            _unpack(folder)
    return unpacked


class Prometheus(Companion):
    """A Prometheus that scrapes and evaluates every second; a context manager that ends it.

    `jobs` are scrape configurations, `rules` is a file of rules, `url` where it answers (`port`:
    any that is free).
    """

    def __init__(
        self, *jobs: dict[str, Any], rules: Path | None = None, port: int | None = None
    ) -> None:
        super().__init__("prometheus")
        self._folder = self._processes.folder
        port = port or free_port()
        self.url = f"http://127.0.0.1:{port}"
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {
            "global": every,
            "rule_files": [str(rules)] if rules else [],
            "scrape_configs": list(jobs),
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._argv = [
            str(program("prometheus")),
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]

    def _begin(self) -> None:
        self._processes.start("prometheus", self._argv)
        wait_for(self._is_ready, 120, "Prometheus to be ready")

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now."""
        found: list[dict[str, Any]] = self._data("/api/v1/query", query=expression)["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules as they stand: with `health` and `lastError`."""
        return [rule for group in self._data("/api/v1/rules")["groups"] for rule in group["rules"]]

    def _is_ready(self) -> bytes:
        self._processes.check()  # what it has not understood of its configuration is in its log
        return self._get("/-/ready")

    def _data(self, path: str, **query: str) -> Any:
        return json.loads(self._get(f"{path}?{urllib.parse.urlencode(query)}"))["data"]

    def _get(self, path: str) -> bytes:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise HarnessError(
                f"Prometheus answers {error.code}: {error.read().decode()[:500]}"
            ) from error
        except OSError as error:
            raise HarnessError(f"Prometheus does not answer: {error}") from error


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise HarnessError(
            "the alerts are tested with promtool, which this machine has not: install Prometheus"
        )
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        if (
            _apt("download", PACKAGE, folder=scratch) != 0
        ):  # the lists of packages are missing, or old
            _apt("update", folder=scratch)
            if _apt("download", PACKAGE, folder=scratch) != 0:
                raise HarnessError(
                    f"`apt-get download {PACKAGE}` failed: install Prometheus, so that there is a "
                    "promtool"
                )
        (package,) = Path(scratch).glob("*.deb")
        subprocess.run(
            ["dpkg-deb", "--extract", str(package), str(Path(scratch) / "found")],
            check=True,
            capture_output=True,
        )
        shutil.rmtree(folder, ignore_errors=True)
        (Path(scratch) / "found").rename(folder)


def _apt(*arguments: str, folder: str) -> int:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        ["apt-get", "--quiet", *arguments], cwd=folder, env=quiet, capture_output=True, check=False
    ).returncode
