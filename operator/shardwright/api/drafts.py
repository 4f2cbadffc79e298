"""What is asked of a draft model before any layout is looked at: that the engine takes it, and that
the planner can count it.
"""

from collections.abc import Iterator
from typing import Final

from shardwright.api.workload import DraftModel
from shardwright.errors import InputError, Problem
from shardwright.layouts.traits import Drafter, EngineTraits
from shardwright.modelspec.computed import computed_in
from shardwright.modelspec.spec import GroupedAttention, ModelSpec, interned

PATH: Final = "spec.workload.draftModel"

_OTHER_METHODS: Final = ("eagle-", "eagle3", "dflash", "dspark")
"""Names of files by which the engine takes a draft model for one of another method, whatever it is
told. Source: vLLM 0.32 ``config/speculative.py:__post_init__``.
"""


def drafter_of(
    draft: DraftModel, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Drafter:
    """Return a draft model as the engine holds it: as it is stored, computed in the type of its
    target.

    Args:
        draft: The field.
        stored: The draft model as its config has it.
        model: Its target, as the engine holds it.
        traits: The engine.

    Raises:
        InputError: The engine does not take it, or what it takes beside this target is not known.
    """
    if problems := tuple(_problems(draft, stored, model, traits)):
        raise InputError(problems)
    return Drafter(
        model=interned(computed_in(stored, model.dtype)), tokens=draft.draft_tokens
    )


def _problems(
    draft: DraftModel, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Iterator[Problem]:
    engine = f"{traits.name} {traits.version}"
    field, folder = (
        ("id", draft.id) if draft.pvc is None else ("pvc.path", draft.pvc.path or "")
    )
    if named := next((word for word in _OTHER_METHODS if word in folder.lower()), None):
        yield Problem(
            code="DraftOfOtherMethod",
            path=f"{PATH}.{field}",
            what=f"{folder} with {named!r} in its name",
            limit=f"is no draft model to {engine}, which tells other methods by that",
            remedy="use a model of its own (EAGLE heads and their like are not supported), or a "
            "folder with another name",
        )
    if stored.architecture not in traits.drafts_with:
        yield Problem(
            code="DraftNotSupported",
            path=f"{PATH}.id",
            what=f"a draft model of {stored.architecture}",
            limit=f"is not among those that are known to draft in {engine}: "
            f"{', '.join(sorted(traits.drafts_with))}",
            remedy="use a draft model of one of these, or promptLookup",
        )
    if stored.vocabulary != model.vocabulary:
        yield Problem(
            code="DraftVocabularyDiffers",
            path=f"{PATH}.id",
            what=f"a draft model with a vocabulary of {stored.vocabulary:,} tokens",
            limit=f"must have the {model.vocabulary:,} of {model.source}",
            gap=f"{abs(stored.vocabulary - model.vocabulary):,} apart",
            remedy="use a draft model of the same family",
        )
    for one in (stored, model):
        if not _keeps_all(one) or one.cache_dtype is not None:
            yield Problem(
                code="DraftCacheUnknown",
                path=PATH,
                what=f"the K/V of {one.source}",
                limit="must be of one kind: keys and values of the whole context, in the model's "
                "own type",
                gap="of others it is not known how they share blocks",
                remedy="use another draft model"
                if one is stored
                else "use promptLookup",
            )


def _keeps_all(model: ModelSpec) -> bool:
    """Return whether every layer keeps keys and values of the whole context, and nothing else."""
    kinds = {layer.attention for layer in model.layers}
    plain = (
        isinstance(kind, GroupedAttention)
        and kind.window is None
        and not kind.index_dim
        for kind in kinds
    )
    return all(plain) and not any(
        isinstance(kind, GroupedAttention) and kind.selected_tokens for kind in kinds
    )
