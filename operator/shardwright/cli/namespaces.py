"""In which namespace a manifest is meant: it says so, a flag does, or the context of the
kubeconfig; never two of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from shardwright.errors import InputError, Problem
from shardwright.hardware.untrusted import mapping


def placed_in(
    content: Mapping[str, Any], flag: str, otherwise: Callable[[], str]
) -> Mapping[str, Any]:
    """Return a manifest with its namespace: its own, that of ``-n`` (empty: not given), or the
    result of ``otherwise``.

    Raises:
        InputError: it names another one than the flag does, which kubectl refuses, too.
    """
    metadata = mapping(content.get("metadata"))
    named = metadata.get("namespace")
    if flag and named is not None and named != flag:
        what = f"{named!r:.80} is not the namespace of -n, {flag}"
        raise InputError(
            [
                Problem(
                    code="NotTogether",
                    path="metadata.namespace",
                    what=what,
                    remedy="leave one of the two out",
                )
            ]
        )
    namespace = flag or (otherwise() if named is None else "")
    return (
        {**content, "metadata": {**metadata, "namespace": namespace}}
        if named is None and namespace
        else content
    )
