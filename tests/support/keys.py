"""What the operators of the tests sign with."""

from typing import Final

from shardwright.reconcile.record_object import read_keys

SIGNING_KEY: Final = "of the operators of the tests, whichever it is\n"
KEYS: Final = read_keys(SIGNING_KEY)
