"""Lists of which the least important columns are left out where a terminal is narrow, which is
said under them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.reporting.lines import (
    ELLIPSIS,
    GAP,
    NARROWEST_LAST_COLUMN,
    Line,
    Role,
    columns,
    paragraph,
    table,
    table_width,
)

Rows = Sequence[Sequence[str]]

_LEFT_OUT: Final = "no room for {}: -o wide has all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Cells under a header; the last column may be wrapped."""

    header: Sequence[str]
    rows: Rows

    def without(self, *names: str) -> "Sheet":
        """Return the sheet without some of its columns.

        >>> Sheet(header=("ID", "GIB"), rows=[("a", "80")]).without("GIB")
        Sheet(header=('ID',), rows=[('a',)])
        """
        kept = [at for at, name in enumerate(self.header) if name not in names]
        return Sheet(
            header=tuple(self.header[at] for at in kept),
            rows=[tuple(row[at] for at in kept) for row in self.rows],
        )

    def filled(self) -> "Sheet":
        """Return the sheet without the columns that are empty in every row.

        >>> Sheet(header=("ID", "DATE"), rows=[("a", "")]).filled()
        Sheet(header=('ID',), rows=[('a',)])
        """
        return self.without(
            *(
                name
                for at, name in enumerate(self.header)
                if not any(row[at] for row in self.rows)
            )
        )

    def cut_to(self, width: int) -> "Sheet":
        """Return the sheet with its last column cut, so that each row fits in the width. A cell
        that is cut ends in an ellipsis.

        >>> Sheet(header=("ID", "KIND"), rows=[("a", "llamas")]).cut_to(7).rows
        [('a', 'lla\u2026')]
        """
        front = table_width(
            self.header[:-1], [row[:-1] for row in self.rows], indent=""
        )
        room = max(
            width - front - len(GAP),
            len(self.header[-1]),
        )
        rows = [
            (
                *row[:-1],
                _cut(
                    row[-1],
                    room,
                ),
            )
            for row in self.rows
        ]
        return Sheet(
            header=self.header,
            rows=rows,
        )

    def fits(
        self,
        width: int,
        indent: str,
    ) -> bool:
        """Return whether it is a table in this width, with its last column wrapped at worst."""
        last = table_width(
            self.header[-1:],
            [row[-1:] for row in self.rows],
            indent="",
        )
        whole = table_width(
            self.header,
            self.rows,
            indent=indent,
        )
        return whole - last + min(last, NARROWEST_LAST_COLUMN) <= width


def widest_that_fits(
    sheets: Sequence[Sheet], *, width: int, indent: str = ""
) -> list[Line]:
    """Return the first of some sheets that is a table in this width, else the last; under it the
    columns that the first has and it has not.
    """
    chosen = sheets[-1]
    for sheet in reversed(sheets):
        if sheet.fits(width, indent):
            chosen = sheet
    lost = [name for name in sheets[0].header if name not in chosen.header]
    lines = table(
        chosen.header,
        chosen.rows,
        width=width,
        indent=indent,
    )
    if lost:
        said = _LEFT_OUT.format(" and ".join(lost))
        lines += paragraph(
            f"{indent}{said}",
            width=width,
            role=Role.FAINT,
        )
    return lines


def _cut(text: str, room: int) -> str:
    kept = text
    while columns(kept) > room:
        kept = kept.removesuffix(ELLIPSIS)[:-1] + ELLIPSIS
    return kept
