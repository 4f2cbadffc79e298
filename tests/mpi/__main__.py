"""`python -m tests.mpi`: installs what the tests need, unless it is cached; exit code 2 says that
they cannot run here.
"""

from __future__ import annotations

import sys

from tests.harness.errors import HarnessError
from tests.mpi import environment


def main() -> int:
    try:
        environment.install()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
