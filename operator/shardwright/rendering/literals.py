"""Words and variables of a container, as the kubelet takes them.

A shell's quoting is not done here: scripts get these words as arguments.
"""

from typing import Final

HUB_TOKEN_VARIABLE: Final = "HF_TOKEN"  # noqa: S105 - the name of a variable


def literal(text: str) -> str:
    """Return text that the kubelet hands on as it stands: it expands ``$(NAME)`` and halves ``$$``
    in our text.

    >>> literal("$(HF_TOKEN) costs $5")
    '$$(HF_TOKEN) costs $$5'
    """
    return text.replace("$", "$$")
