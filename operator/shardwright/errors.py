"""What is a problem? A value that says the fault, the limit, the gap and the way out. Only bad
input is raised (:class:`InputError`); that nothing fits is an answer.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, in four parts, with a stable code.

    ``code`` is one CamelCase word: also the condition reason, the metric label, the docs anchor and
    the id of the test. ``path`` is the field to change, as it stands in the manifest.
    """

    code: str
    what: str
    limit: str = ""
    gap: str = ""
    remedy: str = ""
    path: str = ""

    def sentence(self) -> str:
        """Return the problem as one sentence: fact, limit, gap; way out.

        >>> Problem(
        ...     code="HeadsNotDivisible",
        ...     path="spec.parallelism.tensor",
        ...     what="28 attention heads",
        ...     limit="must be divisible by tensor 8",
        ...     gap="4 left over",
        ...     remedy="use tensor 4 or 7",
        ... ).sentence()
        'spec.parallelism.tensor: 28 attention heads must be divisible by tensor 8, 4 left over; use tensor 4 or 7'
        """  # noqa: E501 - a sentence as it is said
        fact = ", ".join(part for part in (f"{self.what} {self.limit}".strip(), self.gap) if part)
        sentence = "; ".join(part for part in (fact, self.remedy) if part)
        return f"{self.path}: {sentence}" if self.path else sentence

    def document(self) -> dict[str, str]:
        """Return the parts and the sentence, as a program reads them; empty parts are left out.

        >>> Problem(code="NoNodes", what="no Node is in it").document()
        {'code': 'NoNodes', 'what': 'no Node is in it', 'message': 'no Node is in it'}
        """
        parts = {
            "code": self.code,
            "path": self.path,
            "what": self.what,
            "limit": self.limit,
            "gap": self.gap,
            "remedy": self.remedy,
            "message": self.sentence(),
        }
        return {name: text for name, text in parts.items() if text}

    def under(self, prefix: str) -> "Problem":
        """Return the problem with a prefix before its path."""
        return replace(self, path=f"{prefix}.{self.path}" if self.path else prefix)


class InputError(ValueError):
    """The user must change the input: all problems that were found, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.sentence() for problem in self.problems))


def hint_for(word: str, known: Iterable[str]) -> str:
    """Return the way out of a misspelt name: the known one that is like it, or all known ones.

    >>> (hint_for("tensr", ("tensor", "pipeline")), hint_for("foo", ("tensor", "pipeline")))
    ('did you mean tensor?', 'known here: tensor, pipeline')
    """
    names = list(known)
    if near := nearest(word, names):
        return f"did you mean {near}?"
    return f"known here: {', '.join(names)}" if names else "remove it"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one, or None."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return lower[close[0]] if close else None
