"""``shardwright-operator``, and ``python -m shardwright.controller``."""

import sys
from typing import Final

NOT_INSTALLED_EXIT_CODE: Final = 2


def main() -> int:
    """Run the operator, or name in one line the packages to install if its libraries are
    missing.
    """
    try:
        from shardwright.controller.main import main as run  # noqa: PLC0415 - this is what may be missing
    except ModuleNotFoundError as error:
        if str(error.name).startswith("shardwright"):
            raise
        sys.stderr.write(
            f"error: the operator needs {error.name}, which is not installed: pip install "
            "'shardwright[operator]'\n"
        )
        return NOT_INSTALLED_EXIT_CODE
    return run()


if __name__ == "__main__":
    sys.exit(main())
