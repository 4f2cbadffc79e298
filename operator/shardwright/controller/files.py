"""Files that the kubelet renews: read again on change; the last good content stays in use."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from shardwright.errors import InputError
from shardwright.modelspec.catalogue import read_catalogue_extension

log = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")


class Watched(Generic[Parsed]):
    """A file and its last parsed value; at first ``begin`` or, if None, an empty text's value."""

    def __init__(
        self,
        file: Path | None,
        what: str,
        read: Callable[[str], Parsed],
        begin: Parsed | None = None,
    ) -> None:
        self._file = file
        self._what = what
        self._read = read
        self._seen = b""
        self.content = read("") if begin is None else begin

    def load(self) -> None:
        """Read the file for the first time.

        Raises:
            ValueError: it cannot be used: there is no last good content yet.
        """
        seen = self._bytes() or b""
        # Raises here, other than later: with a file that cannot be used the operator does not
        # start.
        self.content, self._seen = self._read(seen.decode()), seen

    def reload(self) -> bool:
        """Reread the file if it has changed and return whether it had; a broken or missing one
        changes nothing.
        """
        seen = self._bytes()
        if seen is None or seen == self._seen:
            return False
        # Before it is understood: a broken file is complained of once, not every five seconds.
        self._seen = seen
        try:
            self.content = self._read(seen.decode())
        except (ValueError, InputError) as error:
            log.error("%s cannot be used: %s", self._what, error)  # noqa: TRY400  # the message is the whole story
            return False
        log.info("%s was read anew", self._what)
        return True

    def _bytes(self) -> bytes | None:
        try:
            return self._file.read_bytes() if self._file else None
        except OSError:
            return None


def catalogue_of(text: str) -> Mapping[str, Mapping[str, object]]:
    """Return the models of the catalogue file, by id.

    Raises:
        ValueError: it is none.
    """
    return read_catalogue_extension(_texts(text))


def _texts(content: str) -> dict[str, str]:
    texts = json.loads(content or "{}")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it must be one JSON object of model id to the text of a config.json")
    return texts
