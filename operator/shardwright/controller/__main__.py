"""``python -m shardwright.controller``."""

import sys

from shardwright.controller.main import main

sys.exit(main())
