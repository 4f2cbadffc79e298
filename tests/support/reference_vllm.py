"""The reference page of vLLM's options, made from the tables that arguments are checked against."""

from collections.abc import Iterator, Mapping
from typing import Final

from shardwright.engines.policy import Option, option_table
from shardwright.engines.vllm.arguments import FAMILIES
from shardwright.engines.vllm.policy import POLICY, RULES

_VERSIONS: Final = RULES.tables.versions
_ADMITTED: Final = (
    "They can do more than serve a model. The administrator may admit them by name "
    "(`policy.admittedArguments` of the chart)."
)
_FREE: Final = (
    "They change neither the plan nor who may do what in the pod: everybody may set them."
)
_NEVER: Final = (
    "Nobody can admit them: they would contradict the plan, or break what the operator relies on."
)
_UNCOUNTED: Final = (
    "Nobody has worked out what they do to a plan. The administrator may admit them "
    "(`policy.admittedArguments` of the chart); the plan then says so, Planned has the reason "
    "[OptionsNotCounted](../reasons.md#optionsnotcounted), and the bands of memory and "
    "speed are twice as wide."
)
_LISTS: Final = (
    ("Free", _FREE, POLICY.allowed),
    ("Counted", "Everybody may set them, and the plan is made with them.", POLICY.counted),
    ("Not counted", _UNCOUNTED, POLICY.uncounted),
    ("Refused unless admitted", _ADMITTED, POLICY.dangerous),
    ("Planned", "The plan or a field of the spec says them.", POLICY.owned),
    ("Never", _NEVER, POLICY.incompatible),
)
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


def lines() -> Iterator[str]:
    """Yield the lines of ``docs/reference/vllm-options.md``."""
    yield from ("# Options of vllm serve", "")
    yield f"All that vLLM {' and '.join(_VERSIONS)} know, as `spec.engine.args` takes them: by"
    yield "name, without dashes, several values of one as a list or with spaces between them, JSON as"
    yield "YAML or as text."
    yield "`make generate` writes this page from the tables that arguments are checked against;"
    yield "[engines.md](../engines.md) says how."
    tables = {version: option_table(version, RULES.tables) or {} for version in _VERSIONS}
    options = {name: table[name] for table in tables.values() for name in table}
    for heading, meaning, listed in _LISTS:
        yield from ("", f"## {heading}", "", meaning, "")
        yield from ("| option | type | |", "|---|---|---|")
        for name in sorted(options.keys() & set(listed)):
            known = [version for version, table in tables.items() if name in table]
            only = "" if len(known) == len(tables) else f"{' and '.join(known)} only"
            yield f"| `{name}` | {_type(options[name])} | {_said(name, only)} |"
    yield from _families()


def _said(name: str, only: str) -> str:
    texts = (POLICY.counted, POLICY.uncounted, POLICY.owned, POLICY.dangerous, POLICY.incompatible)
    said = next((text[name] for text in texts if name in text), "")
    may = "may change " if name in POLICY.uncounted else ""
    values = ", ".join(f"`{value}`" for value in sorted(POLICY.harmless.get(name, ())))
    harmless = f"everybody may say {values}" if values else ""
    return "; ".join(filter(None, (f"{may}{said}", harmless, only)))


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
    yield "Told where `spec.engine.args` says none of them, unless `spec.engine.familyDefaults`"
    yield "is `None`. A family is told by the model's id, behind the slash; models named Base"
    yield "have none."
    yield from ("", "| family | tool calls | reasoning | beside | source |")
    yield "|---|---|---|---|---|"
    for family in FAMILIES:
        parsers = " | ".join(
            f"`{name}`" if name else "" for name in (family.tools, family.reasoning)
        )
        form = family.content_format
        beside = f"chat-template-content-format {form}" if form else ""
        yield f"| {family.name} | {parsers} | {beside} | {family.source} |"
