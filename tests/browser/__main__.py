"""`python -m tests.browser`: installs Chromium unless it is there; exit code 2 says that the tests
cannot run here.
"""

from __future__ import annotations

import sys

from tests.browser import chromium
from tests.harness.errors import HarnessError


def main() -> int:
    try:
        chromium.install()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
