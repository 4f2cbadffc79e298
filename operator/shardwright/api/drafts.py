"""Checks of a drafter before any layout: that the engine takes it, and the planner can count it.

A draft model of another vocabulary is refused, and one whose K/V would share blocks with its
target's in an unknown way.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from shardwright.api.engine import DraftHead
from shardwright.api.weights import claim_of, commit_of
from shardwright.errors import InputError, Problem
from shardwright.layouts.traits import Drafter, DraftMethod, EngineTraits
from shardwright.modelspec.computed import computed_in
from shardwright.modelspec.spec import (
    GroupedAttention,
    LatentAttention,
    ModelSpec,
    PipelineRole,
    Weight,
    interned,
)

_OTHER_METHODS: Final = ("eagle-", "eagle3", "dflash", "dspark")
"""Names of files by which the engine takes a draft model for one of another method, whatever it is
told. Source: vLLM 0.32 ``config/speculative.py:__post_init__``.
"""


def draft_model_of(
    head: DraftHead, path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Drafter:
    """Return a draft model as the engine holds it: as stored, computed in its target's type.

    Args:
        head: The field.
        path: Its path in the resource.
        stored: The draft model as its config has it.
        model: Its target, as the engine holds it.
        traits: The engine.

    Raises:
        InputError: The engine does not take it, or it is not known how its K/V shares blocks with
            that of its target.
    """
    problems = (
        *_draft_model_problems(head, path, stored, model, traits),
        *_cache_problems(path, stored, model),
    )
    if problems:
        raise InputError(problems)
    return Drafter(model=interned(computed_in(stored, model.dtype)))


def eagle_of(path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits) -> Drafter:
    """Return an EAGLE-3 head as the engine holds it; arguments as in :func:`draft_model_of`.

    Raises:
        InputError: The engine does not take it, or it is not known how its K/V shares blocks with
            that of its target.
    """
    problems = (
        *_eagle_problems(path, stored, model, traits),
        *_cache_problems(path, stored, model),
    )
    if problems:
        raise InputError(problems)
    held = interned(computed_in(stored, model.dtype))
    return Drafter(model=held, method=DraftMethod.EAGLE3)


def predictor_of(
    path: str, held: ModelSpec | None, model: ModelSpec, tokens: int | None
) -> Drafter:
    """Return the MTP layers of a model, which end in its output head.

    Raises:
        InputError: The model has none that can be counted, or they do not draft the ``tokens`` that
            are stated (None: the plan chooses).
    """
    if held is None:
        raise InputError(
            [
                Problem(
                    code="PredictorNotCounted",
                    path=f"{path}.method",
                    what=f"the MTP layers of {model.source}",
                    limit="are not counted, or its config.json has none",
                    remedy="use EAGLE3, DraftModel or PromptLookup",
                )
            ]
        )
    drafter = Drafter(model=interned(held), method=DraftMethod.MTP, borrowed=_output_head(model))
    if tokens is not None and not drafter.drafts(tokens):
        layers = len(held.layers)
        raise InputError(
            [
                Problem(
                    code="DraftTokensUneven",
                    path=f"{path}.tokens",
                    what=f"{tokens} drafted tokens",
                    limit=f"must be a multiple of the {layers} "
                    f"MTP layers of {model.source}, or fewer",
                    gap=f"{tokens % layers} left over",
                    remedy=f"use {tokens - tokens % layers}, or leave tokens out",
                )
            ]
        )
    return drafter


def _output_head(model: ModelSpec) -> tuple[Weight, ...]:
    """Return the matrix that makes logits of hidden states, the embedding if they share one."""
    wide = [weight for weight in model.weights if weight.inputs > 1]
    own = tuple(weight for weight in wide if weight.part is PipelineRole.HEAD)
    if own:
        return own
    ends = (weight for weight in wide if weight.part is PipelineRole.EMBEDDING)
    return tuple(_as_head(weight) for weight in ends)


def _as_head(weight: Weight) -> Weight:
    return replace(weight, part=PipelineRole.HEAD)


def _draft_model_problems(
    head: DraftHead, path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Iterator[Problem]:
    engine = f"{traits.name} {traits.version}"
    claim, commit = claim_of(head.uri), commit_of(head.uri)
    folder = claim[1] if claim else commit[0] if commit else ""
    if named := next((word for word in _OTHER_METHODS if word in folder.lower()), None):
        yield Problem(
            code="DraftOfOtherMethod",
            path=f"{path}.uri",
            what=f"{folder} with {named!r} in its name",
            limit=f"is not loaded as a draft model: {engine} "
            "takes this word in a path for another method",
            remedy="use engine.speculation with method EAGLE3 if it is such a head, else a "
            "folder with another name",
        )
    if stored.architecture in traits.support.becomes_predictor:
        yield Problem(
            code="DraftNotSupported",
            path=f"{path}.id",
            what=f"a draft model of {stored.architecture}",
            limit=f"is not loaded as one by {engine}, which makes MTP layers of it",
            remedy="use a draft model of another architecture, or PromptLookup",
        )
    if stored.vocabulary != model.vocabulary:
        yield Problem(
            code="DraftVocabularyDiffers",
            path=f"{path}.id",
            what=f"a draft model with a vocabulary of {stored.vocabulary:,} tokens",
            limit=f"must have the {model.vocabulary:,} of {model.source}",
            gap=f"{abs(stored.vocabulary - model.vocabulary):,} apart",
            remedy="use a draft model of the same family",
        )


def _eagle_problems(
    path: str, stored: ModelSpec, model: ModelSpec, traits: EngineTraits
) -> Iterator[Problem]:
    if model.architecture not in traits.support.takes_eagle3:
        yield Problem(
            code="DraftNotSupported",
            path=f"{path}.id",
            what=f"an EAGLE-3 head beside {model.architecture}",
            limit=f"is not taken by {traits.name} {traits.version}",
            gap="its class hands out no states of its layers",
            remedy="use a draft model, or PromptLookup",
        )
    # Tokens are proposed and verified by their numbers in the vocabulary.
    if stored.vocabulary != model.vocabulary:
        yield Problem(
            code="DraftVocabularyDiffers",
            path=f"{path}.config.vocab_size",
            what=f"an EAGLE-3 head with a vocabulary of {stored.vocabulary:,} tokens",
            limit=f"must have the {model.vocabulary:,} of {model.source}",
            gap=f"{abs(stored.vocabulary - model.vocabulary):,} apart",
            remedy="use a head that was trained for this model",
        )


def _cache_problems(path: str, stored: ModelSpec, model: ModelSpec) -> Iterator[Problem]:
    for one in (stored, model):
        if not _keeps_all(one) or one.cache_dtype is not None:
            yield Problem(
                code="DraftCacheUnknown",
                path=path,
                what=f"the K/V of {one.source}",
                limit="must be of one kind: keys and values of "
                "the whole context, in the model's own type",
                gap="how other caches share blocks is not known",
                remedy="use another draft model" if one is stored else "use PromptLookup",
            )


def _keeps_all(model: ModelSpec) -> bool:
    """Return whether all layers keep K/V or latents of the whole context, and nothing else."""
    return all(
        isinstance(kind, GroupedAttention | LatentAttention)
        and kind.window is None
        and not kind.index_dim
        and not kind.selected_tokens
        for kind in {layer.attention for layer in model.layers}
    )
