"""Answers to questions that tests ask again and again: most begin with one of a few plans, and the
same question has the same answer. A test that patches planning asks a worker that remembers
nothing, as the answers here outlive the patch.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Mapping
from hashlib import sha256
from io import BytesIO
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")

_KNOWN: dict[bytes, object] = {}


def known(function: Callable[Asked, Answer], *asked: Asked.args, **named: Asked.kwargs) -> Answer:
    """Return the answer of a function of frozen values, to another frozen value: it is worked out
    once for all questions that are alike in every byte.
    """
    file = BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump((function, asked, named))
    question = sha256(file.getvalue()).digest()
    if question not in _KNOWN:
        _KNOWN[question] = function(*asked, **named)
    return cast("Answer", _KNOWN[question])


def _copied(proxy: Mapping[Any, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return dict, (dict(proxy),)


class _Pickler(pickle.Pickler):
    dispatch_table: Mapping[type, Callable[[Any], Any]] = {
        **copyreg.dispatch_table,
        MappingProxyType: _copied,
    }
