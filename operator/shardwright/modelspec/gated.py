"""Which repositories of the hub are gated: whoever has not accepted their terms, or brings no
token, gets no file of them.
"""

from typing import Final

GATED: Final = ("meta-llama/", "google/gemma-2-", "google/gemma-3-")
"""How the ids of gated repositories begin. Basis: the pages of these organisations on the hub,
general knowledge, not read anew; what is not among them may be gated all the same.
"""


def is_gated(model_id: str) -> bool:
    """Return whether a repository is known to be gated.

    >>> (
    ...     is_gated("meta-llama/Llama-3.1-8B-Instruct"),
    ...     is_gated("Qwen/Qwen2.5-7B-Instruct"),
    ... )
    (True, False)
    """
    return model_id.startswith(GATED)
