"""`python -m tests.engine {install,path,lock}`: the engine's environment from the command line."""

from __future__ import annotations

import argparse
import sys

from tests.engine import environment
from tests.harness.errors import HarnessError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.engine", description="The environment with the real engine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install the engine, unless it is cached")
    commands.add_parser("path", help="install it and print its folder, a virtual environment")
    commands.add_parser("lock", help="resolve requirements.in into requirements.lock")
    options = parser.parse_args()
    try:
        if options.command == "lock":
            environment.write_lock()
            return 0
        installed = environment.install()
        environment.streamer(installed)
        home = installed.home
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if options.command == "path":
        print(home)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
