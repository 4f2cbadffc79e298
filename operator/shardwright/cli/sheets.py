"""Lists that leave out their least important columns on a narrow terminal, and say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shardwright.reporting.lines import (
    GAP,
    Line,
    Role,
    clipped,
    fits,
    line,
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
        """Return the sheet without columns that are empty in every row.

        >>> Sheet(header=("ID", "DATE"), rows=[("a", "")]).filled()
        Sheet(header=('ID',), rows=[('a',)])
        """
        columns = zip(self.header, *self.rows, strict=True)
        return self.without(*(name for name, *cells in columns if not any(cells)))

    def cut_to(self, width: int) -> "Sheet":
        """Return the sheet with its last column cut to the width, with an ellipsis.

        >>> Sheet(header=("ID", "KIND"), rows=[("a", "llamas")]).cut_to(7).rows
        [('a', 'lla\u2026')]
        """
        *names, last = self.header
        front = table_width(names, [row[:-1] for row in self.rows], indent="")
        room = max(width - front - len(GAP), len(last))
        rows = [(*row, clipped(line(cell), room).plain()) for *row, cell in self.rows]
        return Sheet(header=self.header, rows=rows)


def widest_that_fits(sheets: Sequence[Sheet], *, width: int, indent: str = "") -> list[Line]:
    """Return the first sheet that fits as a table, else the last, and name the missing columns."""
    fitting = (
        sheet for sheet in sheets if fits(sheet.header, sheet.rows, width=width, indent=indent)
    )
    chosen = next(fitting, sheets[-1])
    lost = [name for name in sheets[0].header if name not in chosen.header]
    lines = table(chosen.header, chosen.rows, width=width, indent=indent)
    if lost:
        said = f"{indent}{_LEFT_OUT.format(' and '.join(lost))}"
        lines += paragraph(said, width=width, role=Role.FAINT)
    return lines
