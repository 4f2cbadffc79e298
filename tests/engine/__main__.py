"""`python -m tests.engine {install,path,lock,tables,sglang}`: the engine's environment, and what is asked of
it, from the command line.
"""

from __future__ import annotations

import argparse
import sys

from tests.engine import environment, sglang_classes, tables
from tests.harness.errors import HarnessError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.engine", description="The environment with the real engine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install the engine, unless it is cached")
    commands.add_parser("path", help="install it and print its folder, a virtual environment")
    commands.add_parser("lock", help="resolve requirements.in into requirements.lock")
    commands.add_parser("sglang", help="write what SGLang's parser and classes say")
    written = commands.add_parser("tables", help="write what planning reads from the wheels")
    known = f"of {', '.join(environment.VERSIONS)}; all by default"
    written.add_argument("versions", nargs="*", metavar="VERSION", help=known)
    options = parser.parse_args()
    try:
        if options.command == "lock":
            environment.write_lock()
            return 0
        if options.command == "tables":
            tables.write(options.versions or environment.VERSIONS)
            return 0
        installed = environment.install()
        environment.streamer(installed)
        environment.router(installed)
        environment.sglang(installed)
        if options.command == "sglang":
            sglang_classes.write(installed)
            return 0
        home = installed.home
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if options.command == "path":
        print(home)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
