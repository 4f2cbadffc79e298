"""Checks engine arguments: may the user set this one, and would the engine's parser take the value."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches

from shardwright.engines import policy
from shardwright.engines.option_tables import VERSIONS, Option, canonical, option_table
from shardwright.engines.pins import check_pins
from shardwright.errors import Problem

_WORDS = {"int": "a whole number", "float": "a number", "human_readable_int": "a whole number, also as 8k or 1M"}
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_JSON_TYPES = frozenset({"loads", "parse_dataclass", "union_dict_and_str", "_parse_type"})


def check_arguments(
    arguments: Mapping[str, object], version: str, admitted: Collection[str] = frozenset()
) -> tuple[Problem, ...]:
    """Return what is wrong with a user's engine arguments, each problem's path being the argument's name.

    Args:
        arguments: option name without dashes to value; ``true`` and ``false`` for switches.
        version: vLLM version; one that no option list holds for takes no arguments of a user.
        admitted: dangerous options that the administrator lets users set, by the parser's own names.
    """
    if not arguments:
        return ()
    table = option_table(version)
    if table is None:
        return tuple(_no_table(name, version) for name in arguments)
    problems = [_check(name, value, table, admitted) for name, value in arguments.items()]
    return tuple(problem for problem in (*problems, *check_pins(arguments), *_duplicates(arguments)) if problem)


def check_features(features: Mapping[str, str], version: str) -> tuple[Problem, ...]:
    """Return why a version cannot be asked for more than a plan's own words.

    Args:
        features: option that a field of the spec turns into, to the path of that field.
        version: vLLM version; for one that no option list holds for, nothing beside the plan is said.
    """
    if option_table(version) is not None:
        return ()
    return tuple(replace(_no_table(option, version), path=path) for option, path in features.items())


def check_admission(names: Collection[str]) -> tuple[Problem, ...]:
    """Return which options an administrator cannot admit, each problem's path being the option's name."""
    return tuple(_not_admissible(name) for name in sorted(names) if name not in policy.DANGEROUS)


def _not_admissible(name: str) -> Problem:
    reason = policy.OWNED.get(name) or policy.INCOMPATIBLE.get(name)
    why = "it is allowed anyway" if name in policy.ALLOWED or name in policy.COUNTED else reason or policy.UNLISTED
    return Problem(
        code="EngineArgumentNotAdmissible",
        path=name,
        what=f"--{name}",
        limit="cannot be admitted",
        gap=why,
        remedy="leave it out; docs/engines.md lists what can be admitted",
    )


def check_value(name: str, value: object, version: str) -> Problem | None:
    """Return why vLLM's own parser would refuse ``--name value`` in ``version``, or None; asks no policy.

    ``value`` is a bool for switches, a string as argv holds it, or what YAML makes of it.
    """
    table = option_table(version)
    if table is None:
        return _no_table(name, version)
    option = _find(name, table)
    return _unknown(name, table) if option is None else _check_option(name, option, value)


def argument_list(arguments: Mapping[str, object], version: str) -> tuple[str, ...]:
    """Return checked arguments as argv, sorted by name, one word per option and value.

    >>> argument_list({"seed": 7, "enable_prefix_caching": False, "enforce-eager": True}, "0.33.0")
    ('--no-enable-prefix-caching', '--enforce-eager', '--seed=7')
    """
    table = option_table(version) or {}
    named = sorted((canonical(name), value) for name, value in arguments.items())
    return tuple(word for name, value in named if (word := _word(name, value, table.get(name))))


def _word(name: str, value: object, option: Option | None) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else option.off if option else f"--no-{name}"
    return f"--{name}={_spelled(value)}"


def _check(name: str, value: object, table: Mapping[str, Option], admitted: Collection[str]) -> Problem | None:
    option = _find(name, table)
    if option is None:
        return _unknown(name, table)
    return _forbidden(name, option.name, admitted) or _check_option(name, option, value)


def _find(name: str, table: Mapping[str, Option]) -> Option | None:
    wanted = canonical(name)
    if wanted in table:
        return table[wanted]
    return next((option for option in table.values() if wanted in option.aliases), None)


def _forbidden(name: str, option: str, admitted: Collection[str]) -> Problem | None:
    may_be_set = option in policy.ALLOWED or option in policy.COUNTED or (option in policy.DANGEROUS and option in admitted)
    if may_be_set and canonical(name) == option:
        return None
    if option in policy.OWNED:
        return Problem(
            code="EngineArgumentOwned", path=name, what=f"--{option}", limit="is set by shardwright", remedy=policy.OWNED[option]
        )
    reason = policy.DANGEROUS.get(option) or policy.INCOMPATIBLE.get(option, policy.UNLISTED)
    ask = ", or ask the operator's administrator to admit it" if option in policy.DANGEROUS else ""
    return Problem(
        code="EngineArgumentForbidden",
        path=name,
        what=f"--{option}",
        limit="is not allowed",
        gap=f"because it {reason}",
        remedy=f"leave it out{ask}; docs/engines.md lists the arguments that are allowed",
    )


def _check_option(name: str, option: Option, value: object) -> Problem | None:
    wanted = _mismatch(option, value)
    if wanted is None:
        return None
    return Problem(
        code="EngineArgumentInvalid",
        path=name,
        what=f"--{option.name} {_spelled(value)!r}",
        limit=f"must be {wanted}",
        remedy="correct the value",
    )


def _mismatch(option: Option, value: object) -> str | None:
    """Return what the value must be, or None when the parser takes it."""
    if option.switch:
        return None if isinstance(value, bool) else "true or false"
    if value is None or isinstance(value, bool | list | tuple):
        return "a single value"
    if isinstance(value, Mapping) and option.type not in _JSON_TYPES:
        return "a single value"
    text = _spelled(value)
    if option.choices and text not in option.choices:
        return f"one of {', '.join(option.choices)}"
    return None if _parses(option.type, text) else _WORDS.get(option.type, "JSON")


def _parses(kind: str, text: str) -> bool:
    try:
        _convert(kind, text)
    except ValueError:
        return False
    return True


def _convert(kind: str, text: str) -> object:
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind == "human_readable_int" and text[-1:] in _SUFFIXES:
        return float(text[:-1]) * _SUFFIXES[text[-1]]
    if kind == "human_readable_int":
        return int(text)
    return json.loads(text) if kind in _JSON_TYPES else text


def _spelled(value: object) -> str:
    """Return a value as argv holds it; mappings as JSON with sorted keys."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _duplicates(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    names = [canonical(name) for name in arguments]
    return tuple(
        Problem(
            code="EngineArgumentTwice",
            path=name,
            what=f"--{canonical(name)}",
            limit="is set twice",
            remedy="keep one of the two spellings",
        )
        for index, name in enumerate(arguments)
        if canonical(name) in names[:index]
    )


def _unknown(name: str, table: Mapping[str, Option]) -> Problem:
    close = get_close_matches(canonical(name).removeprefix("no-"), table, n=1)
    hint = f"did you mean {close[0]}?" if close else "write the option's full name without leading dashes"
    return Problem(code="EngineArgumentUnknown", path=name, what=f"{name!r}", limit="is no option of this vLLM", remedy=hint)


def _no_table(name: str, version: str) -> Problem:
    return Problem(
        code="EngineArgumentUnchecked",
        path=name,
        what=f"the options of vLLM {version}",
        limit="are not known to this release",
        gap="so that only what a plan needs can be said to it",
        remedy=f"leave it out or use vLLM {' or '.join(VERSIONS)}",
    )
