"""``shardwright-operator``, and ``python -m shardwright.controller``."""

import sys
from typing import Final

from shardwright.controller.main import main as run

NOT_INSTALLED_EXIT_CODE: Final = 2


def main() -> int:
    """Run the operator. If its libraries are missing, name the packages to install in one line."""
    try:
        return run()
    except ModuleNotFoundError as error:
        if str(error.name).startswith("shardwright"):
            raise
        sys.stderr.write(
            f"error: the operator needs {error.name}, which is not installed: pip install "
            "'shardwright[operator]'\n"
        )
        return NOT_INSTALLED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
