"""An explanation as a terminal without colours shows it."""

from shardwright.reporting.explanation import Explanation
from shardwright.reporting.text import to_lines


def to_text(explanation: Explanation, *, title: str, width: int) -> str:
    """Return the explanation as plain text that ends with a line end."""
    lines = to_lines(explanation, title=title, width=width)
    return "".join(f"{one.plain()}\n" for one in lines)
