"""``shardwright-operator``, and ``python -m shardwright.controller``.

The operator's entry point, ``shardwright-operator``: the command line, without its libraries.

So help is instant, and a wrong option is refused before anything is loaded.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from shardwright.controller.operator_options import parse_options
from shardwright.controller.process_settings import configure

NOT_INSTALLED_EXIT_CODE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator and return its exit code; missing libraries are named in one line."""
    # Twice: before the options are known, so that their complaint is a line of JSON, too.
    configure("INFO")
    options = parse_options(arguments)
    configure(options.log_level)
    # Only the import: a module that is missed later is a fault, and shows where.
    try:
        from shardwright.controller.starting import serve  # noqa: PLC0415 - help needs none of it
    except ModuleNotFoundError as error:
        if str(error.name).startswith("shardwright"):
            raise
        sys.stderr.write(
            f"error: the operator needs {error.name}, which is not installed: pip install "
            "'shardwright[operator]'\n"
        )
        return NOT_INSTALLED_EXIT_CODE
    return asyncio.run(serve(options))


if __name__ == "__main__":
    sys.exit(main())


if __name__ == "__main__":
    sys.exit(main())
