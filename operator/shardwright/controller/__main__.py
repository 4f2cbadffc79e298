"""``shardwright-operator``, and ``python -m shardwright.controller``."""

import sys

from shardwright.controller.main import main

if __name__ == "__main__":
    sys.exit(main())
