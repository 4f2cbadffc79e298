"""How long a context does an engine accept for a model, and take by itself?"""

from typing import Final

from shardwright.modelspec.fields import CONTEXT, Fields

_LENGTHS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)

_INCLUDED: Final = frozenset(
    {"default", "su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}
)
"""RoPE scalings whose factor ``max_position_embeddings`` has in it already."""

_TWO_SETS: Final = frozenset({"longrope", "su"})
_TRAINED: Final = "original_max_position_embeddings"

_MAX_FACTOR: Final = 1024.0
"""Largest RoPE factor that is read; published configs stay below 64."""


def max_context_tokens(fields: Fields) -> int:
    """Return the longest context in tokens.

    Source: vLLM 0.32 ``derive_max_model_len_and_key`` and ``_get_and_verify_max_len``: the smallest
    length in the config, times the factor of linear and dynamic RoPE scaling.
    """
    given = [name for name in _LENGTHS if fields.values.get(name) is not None]
    length = min(fields.integer(name, CONTEXT) for name in given or _LENGTHS[:1])
    # Its length has the factor in it already; vLLM leaves it as it is, too (same source).
    if "gemma3" in (fields.string("model_type") or ""):
        return length
    return int(length * _factor(fields))


def own_context_tokens(fields: Fields) -> int | None:
    """Return the context in tokens that the engine takes by itself, None if it takes the longest.

    LongRoPE has one set of factors for requests as long as those of the training and another for
    longer ones, and an engine applies one to all. Source: vLLM 0.32 ``_get_and_verify_max_len``.
    """
    rope = fields.section("rope_scaling") or fields.section("rope_parameters")
    two = rope is not None and (rope.string("rope_type") or rope.string("type")) in _TWO_SETS
    if not two or fields.values.get(_TRAINED) is None:
        return None
    return fields.integer(_TRAINED, CONTEXT)


def _factor(fields: Fields) -> float:
    rope = fields.section("rope_scaling") or fields.section("rope_parameters")
    if rope is None or (rope.string("rope_type") or rope.string("type") or "default") in _INCLUDED:
        return 1.0
    factor = 1.0 if rope.values.get("factor") is None else rope.values["factor"]
    if (
        isinstance(factor, bool)
        or not isinstance(factor, int | float)
        or not 1 <= factor <= _MAX_FACTOR
    ):
        rope.refuse("factor", f"{factor!r:.60}", f"must be a number, 1 to {_MAX_FACTOR:.0f}")
        return 1.0
    return float(factor)
