"""`python -m tests.harness {build,up,down,path}`: the control plane from the command line."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from tests.harness import ControlPlane, HarnessError, build
from tests.harness.waiting import wait_for


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.harness", description="The test control plane."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build the programs, unless they are cached")
    building.add_argument(
        "--older",
        action="store_true",
        help="and the API servers of older releases, for tests/versions",
    )
    commands.add_parser(
        "path", help="print the folder of the programs; put it into PATH for kubectl and helm"
    )
    up = commands.add_parser(
        "up", help="start a control plane and keep it until Ctrl-C, or until `down`"
    )
    up.add_argument(
        "--feature",
        action="append",
        default=[],
        help="a set of feature gates by name: gang-scheduling",
    )
    up.add_argument(
        "--lease-duration-seconds",
        type=int,
        default=40,
        help="of the nodes' leases; longer for thousands of nodes",
    )
    commands.add_parser("down", help="stop the control plane that `up` keeps")
    options = parser.parse_args()
    try:
        if options.command == "up":
            return _up(options.feature, options.lease_duration_seconds)
        if options.command == "down":
            return _down()
        print(build.binaries())  # noqa: T201
        for release in build.OTHER_VERSIONS if options.command == "build" and options.older else ():
            print(build.api_server(release))  # noqa: T201
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _pid_file() -> Path:
    return build.cache_folder() / "up.pid"


def _up(features: list[str], lease_duration_seconds: int) -> int:
    if _pid_of_up() is not None:
        raise HarnessError(
            "a control plane is up already; end it with `python -m tests.harness down`"
        )
    with ControlPlane.start(
        features=features, lease_duration_seconds=lease_duration_seconds
    ) as control_plane:
        _pid_file().write_text(str(os.getpid()))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print(  # noqa: T201
            f"The control plane is up after {control_plane.start_seconds:.1f} s. It ends with "
            "Ctrl-C."
        )
        print(  # noqa: T201
            f"export KUBECONFIG={control_plane.kubeconfig} PATH={control_plane.bin}:$PATH",
            flush=True,
        )
        try:
            while True:
                control_plane.check()
                time.sleep(1)
        except KeyboardInterrupt:
            print("Stopping.")  # noqa: T201
        finally:
            _pid_file().unlink(missing_ok=True)
    return 0


def _down() -> int:
    pid = _pid_of_up()
    if pid is None:
        print("No control plane is up.")  # noqa: T201
        return 0
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: _pid_of_up() is None, 15, "the control plane to end")
    return 0


def _pid_of_up() -> int | None:
    """The process id of a running `up`. A killed one leaves its file, and the number may be
    another's by now: that is none.
    """
    file = _pid_file()
    if not file.exists():
        return None
    pid = int(file.read_text())
    command = Path(f"/proc/{pid}/cmdline")
    if not command.exists() or b"tests.harness" not in command.read_bytes():
        return None
    return pid


if __name__ == "__main__":
    sys.exit(main())
