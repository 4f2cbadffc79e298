"""Values typed after an option; nan, infinity and numbers that no field could take are refused."""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([a-z]*)", re.ASCII)
_MOST_GBPS = 100_000  # a hundred times the rate of a GPU's network card


def count_of(text: str) -> int:
    """Return a whole number from 1 to 99,999."""
    if not (
        text.isascii() and text.isdigit() and 1 <= len(text) <= 5 and int(text) > 0  # noqa: PLR2004 - 99,999
    ):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1 to 99,999")
    return int(text)


def parts_of(text: str) -> list[str]:
    """Return the parts of a list.

    >>> parts_of("8xH100, B200")
    ['8xH100', 'B200']
    """
    return [part.strip() for part in text.split(",")]


def gbps_of(text: str) -> float:
    """Return a rate in Gbit/s."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= _MOST_GBPS:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40} is not a number above 0 and at most {_MOST_GBPS:,}"
        )
    return rate


def duration_of(text: str, units: Mapping[str, float]) -> float | None:
    """Return a duration, in the unit that ``units`` convert to; None if the text is none."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * units[match[2]] if match and match[2] in units else None


class OutputForm(argparse.Action):
    """``-o``: the form of the output, and that it was asked for: faults are printed in it, too."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the form."""
        del parser, option_string
        namespace.output = namespace.asked_output = values
