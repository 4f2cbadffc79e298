"""The reference page of vLLM's options: every option of every version that has a table, its class
and its type.

TensorRT-LLM's options are not on it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from shardwright.engines.families import FAMILIES
from shardwright.engines.option_tables import VERSIONS, Option, option_table
from shardwright.engines.policy import OptionClass
from shardwright.engines.vllm_policy import VLLM

_UNCOUNTED: Final = (
    "Nobody has worked out what they do to a plan. The administrator may admit them "
    "(`policy.admittedArguments` of the chart); the plan "
    "then says so, Planned has the reason [OptionsNotCounted](../reasons.md#optionsnotcounted), "
    "and the bands of memory and "
    "speed are twice as wide."
)

_HEADINGS: Final[Mapping[OptionClass, tuple[str, str]]] = {
    OptionClass.FREE: (
        "Free",
        "They change neither the plan nor who may do what in the pod: everybody may set them.",
    ),
    OptionClass.COUNTED: (
        "Counted",
        "Everybody may set them, and the plan is made with them.",
    ),
    OptionClass.UNCOUNTED: ("Not counted", _UNCOUNTED),
    OptionClass.DANGEROUS: (
        "Refused unless admitted",
        (
            "They can do more than serve a model. The administrator may admit them by name "
            "(`policy.admittedArguments` of the chart)."
        ),
    ),
    OptionClass.PLANNED: ("Planned", "The plan or a field of the spec says them."),
    OptionClass.INCOMPATIBLE: (
        "Never",
        (
            "Nobody can admit them: they would contradict "
            "the plan, or break what the operator relies on."
        ),
    ),
}
_TYPES: Final[Mapping[str, str]] = {
    "float": "number",
    "human_readable_int": "whole number, also as 8k or 1M",
    "int": "whole number",
    "loads": "JSON",
    "_parse_type": "JSON",
    "parse_dataclass": "JSON",
    "union_dict_and_str": "JSON or text",
}
_SHOWN_CHOICES: Final = 12


def options_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Options of vllm serve"
    yield ""
    yield (
        f"All that vLLM {' and '.join(VERSIONS)} know, as `spec.engine.args` takes them: by "
        "name, without dashes, several"
    )
    yield (
        "values of one with spaces between them, JSON as text. `make generate` writes this page "
        "from the tables that arguments"
    )
    yield "are checked against; [engines.md](../engines.md) says how."
    for found, (heading, meaning) in _HEADINGS.items():
        yield from (
            "",
            f"## {heading}",
            "",
            meaning,
            "",
            "| option | type | |",
            "|---|---|---|",
        )
        yield from (
            _row(option, versions)
            for option, versions in _options()
            if VLLM.class_of(option.name) is found
        )
    yield from _families()


def _options() -> list[tuple[Option, tuple[str, ...]]]:
    tables = {version: option_table(version) or {} for version in VERSIONS}
    names = sorted({name for table in tables.values() for name in table})
    listed = (
        (name, tuple(version for version, table in tables.items() if name in table))
        for name in names
    )
    return [(tables[versions[-1]][name], versions) for name, versions in listed]


def _row(option: Option, versions: tuple[str, ...]) -> str:
    only = "" if versions == VERSIONS else f"{' and '.join(versions)} only"
    said = next(
        (
            text[option.name]
            for text in (VLLM.counted, VLLM.uncounted, VLLM.owned)
            if option.name in text
        ),
        "",
    )
    said = (
        said
        or VLLM.dangerous.get(option.name)
        or VLLM.incompatible.get(option.name, "")
    )
    if option.name in VLLM.uncounted:
        said = f"may change {said}"
    harmless = ", ".join(
        f"`{value}`" for value in sorted(VLLM.harmless.get(option.name, ()))
    )
    parts = (said, f"everybody may say {harmless}" if harmless else "", only)
    return f"| `{option.name}` | {_type(option)} | {'; '.join(filter(None, parts))} |"


def _type(option: Option) -> str:
    if option.switch:
        return "switch"
    if option.choices:
        shown = ", ".join(f"`{choice}`" for choice in option.choices[:_SHOWN_CHOICES])
        return f"one of {shown}{', …' if len(option.choices) > _SHOWN_CHOICES else ''}"
    kind = _TYPES.get(option.type, "text")
    return f"several: {kind}" if option.many else kind


def _families() -> Iterator[str]:
    yield from ("", "## By the model's family", "")
    yield (
        "Told where `spec.engine.args` says none of them, unless `spec.engine.familyDefaults` "
        "is `None`. A family is told by"
    )
    yield "the model's id, behind the slash; models named Base have none."
    yield from (
        "",
        "| family | tool calls | reasoning | beside | source |",
        "|---|---|---|---|---|",
    )
    for family in FAMILIES:
        beside = (
            f"chat-template-content-format {family.content_format}"
            if family.content_format
            else ""
        )
        yield (
            f"| {family.name} | {_code(family.tools)} | {_code(family.reasoning)} | {beside} | "
            f"{family.source} |"
        )


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
