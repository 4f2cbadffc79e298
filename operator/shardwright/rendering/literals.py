"""Words and variables of a container, as the kubelet takes them, without a shell's quoting."""

from typing import Final

HUB_TOKEN_VARIABLE: Final = "HF_TOKEN"  # noqa: S105 - the name of a variable


def literal(text: str) -> str:
    """Return text escaped for the kubelet, which expands ``$(NAME)`` and halves ``$$``.

    >>> literal("$(HF_TOKEN) costs $5")
    '$$(HF_TOKEN) costs $$5'
    """
    return text.replace("$", "$$")
