"""Which engine arguments a user may set, and whether the engine's parser takes the values.

Every argument of a version without a table is refused, and every option not in the policy.

Engine arguments the planner counts with: a value is pinned in the plan as on the command line.

Values that the engine's parser takes and no plan can count are refused: chunked prefill turned off,
unlisted keys of a compilation config.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from shardwright.engines import policy
from shardwright.engines.object_keys import Keys, as_object, key_problems, key_table, leaves
from shardwright.engines.parser_values import (
    JSON_OBJECTS,
    JSON_VALUES,
    WORDS,
    convert,
    readable_int,
)
from shardwright.engines.policy import Option, Policy, Tables, canonical, option_table
from shardwright.errors import Problem
from shardwright.layouts.layout import EngineOverrides

_COMPUTED_IN: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
"""vLLM's names of the types to compute in; ``auto`` is the config's."""

_STATE_BITS: Final = {"bfloat16": 16, "float16": 16, "float32": 32}
"""vLLM's names of the types of recurrent states; ``auto`` is the config's."""

_COMPILATION: Final = "compilation-config"
_COUNTED_KEYS: Final = frozenset(
    {"cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"}
)
_UNCOUNTED_KEYS: Final = frozenset({"custom_ops", "mode", "pass_config"})
"""Keys of ``--compilation-config`` that a user may set: those that change the captured graphs, and
those that change the speed of kernels. The others name code or files.
"""

_MODES: Final = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
_BLOCKS: Final = (16, 32, 64, 128, 256)
_LEAST_UTILIZATION: Final = 0.1  # assumed: less is a slip of the pen


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """The plan's values fixed by a user's arguments; None: as the planner finds it.

    ``dtype`` (bf16, fp16, fp32) is the type computed in, ``state_bits`` the size of a recurrent
    state's element, ``kv_cache_bytes`` every rank's memory for K/V, ``block_tokens`` a block of it,
    ``memory_utilization`` the share of a GPU taken. ``language_only`` leaves out the towers for
    images and sound, ``whole_towers`` puts them on every rank. Without ``chunks_prompts`` a step
    has whole prompts. ``told`` has settings of batches and
    graphs, and those that nobody counts.
    """

    dtype: str | None = None
    state_bits: int | None = None
    kv_cache_bytes: int | None = None
    block_tokens: int | None = None
    memory_utilization: float | None = None
    language_only: bool = False
    whole_towers: bool = False
    chunks_prompts: bool = True
    told: EngineOverrides = field(default_factory=EngineOverrides)


def read_pins(arguments: Mapping[str, object], policy: Policy) -> Pins:
    """Return the pins among checked arguments.

    >>> from shardwright.engines.vllm.policy import POLICY
    >>> read_pins(
    ...     {"dtype": "float32", "kv_cache_memory_bytes": 1073741824, "seed": 1}, POLICY
    ... ) == Pins(dtype="fp32", kv_cache_bytes=1073741824)
    True
    """
    named = {canonical(name): value for name, value in arguments.items()}
    utilization = _number(named.get("gpu-memory-utilization"))
    return Pins(
        dtype=_COMPUTED_IN.get(str(named.get("dtype"))),
        state_bits=_STATE_BITS.get(str(named.get("mamba-ssm-cache-dtype"))),
        kv_cache_bytes=_whole(named.get("kv-cache-memory-bytes")),
        block_tokens=_whole(named.get("block-size")),
        memory_utilization=utilization,
        language_only=named.get("language-model-only") is True,
        whole_towers=named.get("mm-encoder-tp-mode") == "data",
        told=_told(named, policy),
    )


def _told(named: Mapping[str, object], policy: Policy) -> EngineOverrides:
    compilation = _keys(named.get(_COMPILATION))
    sizes, largest = (
        compilation.get("cudagraph_capture_sizes"),
        compilation.get("max_cudagraph_capture_size"),
    )
    # Both say that no graph is captured, so no memory is counted for graphs.
    nothing = named.get("enforce-eager") is True or compilation.get("cudagraph_mode") == "NONE"
    captured = _sizes(named.get("cudagraph-capture-sizes", sizes))
    return EngineOverrides(
        batched_tokens=_whole(named.get("max-num-batched-tokens")),
        sequences=_whole(named.get("max-num-seqs")),
        captured=() if nothing else captured,
        largest_captured=_whole(named.get("max-cudagraph-capture-size", largest)),
        uncounted=(
            *sorted(named.keys() & policy.uncounted.keys()),
            *(f"{_COMPILATION}.{key}" for key in sorted(compilation.keys() & _UNCOUNTED_KEYS)),
        ),
    )


def _keys(value: object) -> Mapping[str, Any]:
    try:
        found = convert("parse_dataclass", value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        try:
            value = readable_int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(value: object) -> float | None:
    try:
        return None if value is None or isinstance(value, bool) else float(str(value))
    except ValueError:
        return None


def _sizes(value: object) -> tuple[int, ...] | None:
    listed = value if isinstance(value, list) else str(value).split() if value is not None else []
    found = tuple(size for each in listed if (size := _whole(each)) is not None)
    return found if found and len(found) == len(listed) else None


def check_pins(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    """Return the pins the planner cannot count with, each problem's path the argument's name.

    The engine's parser takes more: 0 for all that is free, and ``None``.
    """
    named = {canonical(name): value for name, value in arguments.items()}
    wrong = [_wrong(name, value) for name, value in arguments.items()]
    return (
        *(problem for problem in wrong if problem),
        *_too_few_tokens(named),
        *_compilation(arguments),
    )


def _wrong(name: str, value: object) -> Problem | None:
    rule = _RULES.get(canonical(name))
    if rule is None or rule[0](value):
        return None
    what = f"--{canonical(name)} {value!r:.60}"
    return Problem(
        code="EngineArgumentInvalid",
        path=name,
        what=what,
        limit=f"must be {rule[1]}",
        remedy=rule[2],
    )


def _is_share(value: object) -> bool:
    found = _number(value)
    return found is not None and _LEAST_UTILIZATION <= found <= 1


def _is_counted(value: object) -> bool:
    return _whole(value) is not None


_A_NUMBER: Final = "write the number"
_RULES: Final[Mapping[str, tuple[Callable[[object], bool], str, str]]] = MappingProxyType(
    {
        "block-size": (
            lambda value: _whole(value) in _BLOCKS,
            f"one of {', '.join(map(str, _BLOCKS))}",
            "correct the value",
        ),
        "cudagraph-capture-sizes": (
            lambda value: _sizes(value) is not None,
            "whole numbers above 0 with spaces between them",
            "write the sizes, as 1 2 4 8",
        ),
        "enable-chunked-prefill": (
            lambda value: value is True,
            "true: every plan is made with it",
            "leave it out",
        ),
        "gpu-memory-utilization": (
            _is_share,
            f"a number from {_LEAST_UTILIZATION} to 1",
            "write the share of a GPU",
        ),
        "kv-cache-memory-bytes": (
            _is_counted,
            "a whole number of bytes, at least 1",
            "write the number of bytes that every rank shall keep for K/V",
        ),
        "max-cudagraph-capture-size": (_is_counted, "a whole number above 0", _A_NUMBER),
        "max-num-batched-tokens": (_is_counted, "a whole number above 0", _A_NUMBER),
        "max-num-seqs": (_is_counted, "a whole number above 0", _A_NUMBER),
    }
)
"""By option: the check of a value, the values that pass it in words, and the way out."""


def _too_few_tokens(named: Mapping[str, object]) -> tuple[Problem, ...]:
    tokens, sequences = (
        _whole(named.get("max-num-batched-tokens")),
        _whole(named.get("max-num-seqs")),
    )
    if tokens is None or sequences is None or tokens >= sequences:
        return ()
    return (
        Problem(
            code="EngineArgumentInvalid",
            path="max-num-batched-tokens",
            what=f"--max-num-batched-tokens {tokens}",
            limit=f"must be at least --max-num-seqs, {sequences}",
            gap="a batch has a token of every sequence",
            remedy="correct one of the two",
        ),
    )


def _compilation(arguments: Mapping[str, object]) -> tuple[Problem, ...]:
    path = next((name for name in arguments if canonical(name) == _COMPILATION), None)
    if path is None:
        return ()
    return tuple(
        Problem(
            code="EngineArgumentInvalid",
            path=path,
            what=what,
            limit=limit,
            remedy="correct the value",
        )
        for what, limit in _wrong_keys(arguments[path])
    )


def _wrong_keys(value: object) -> Iterator[tuple[str, str]]:
    keys = _keys(value)
    unknown = sorted(keys.keys() - _COUNTED_KEYS - _UNCOUNTED_KEYS)
    if unknown or not keys:
        listed = ", ".join(sorted(_COUNTED_KEYS | _UNCOUNTED_KEYS))
        what = f"key {unknown[0]!r:.60}" if unknown else repr(value)[:60]
        yield what, f"is none of {listed}"
    mode, sizes = keys.get("cudagraph_mode"), keys.get("cudagraph_capture_sizes")
    if mode is not None and mode not in _MODES:
        yield f"cudagraph_mode {mode!r:.60}", f"is none of {', '.join(_MODES)}"
    if sizes is not None and not (isinstance(sizes, list) and _sizes(sizes)):
        yield "cudagraph_capture_sizes", "are not whole numbers above 0"
    largest = keys.get("max_cudagraph_capture_size")
    if largest is not None and not _is_counted(largest):
        yield "max_cudagraph_capture_size", "is no whole number above 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The options an engine's parser takes, and which of them a user may set.

    ``pins`` are the plan's values that checked arguments fix, ``check_pins`` those among the
    counted ones that no plan can count with.
    """

    tables: Tables
    policy: Policy
    pins: Callable[[Mapping[str, object], Policy], Pins] = read_pins
    check_pins: Callable[[Mapping[str, object]], tuple[Problem, ...]] = check_pins


def check_arguments(
    arguments: Mapping[str, object],
    version: str,
    admitted: Collection[str] = frozenset(),
    *,
    collectors: Collection[str] = (),
    rules: Rules,
) -> tuple[Problem, ...]:
    """Return the problems of a user's engine arguments, each problem's path the argument's name.

    Args:
        arguments: option name without dashes to value; ``true`` and ``false`` for switches.
        version: the engine's version; without an option list it takes no arguments of a user.
        admitted: dangerous and uncounted options that the administrator lets users set, by the
            parser's own names.
        collectors: addresses that the administrator lets users send traces to.
        rules: the engine's.
    """
    if not arguments:
        return ()
    # Without a table nothing is admitted: an unknown option may change memory or limits of the
    # plan.
    table = option_table(version, rules.tables)
    if table is None:
        return tuple(_no_table(name, version, rules.tables) for name in arguments)
    known = _Known(
        table=table,
        keys=key_table(version, rules.tables),
        rules=rules,
        admitted=frozenset(map(canonical, admitted)),
        collectors=frozenset(collectors),
    )
    given = frozenset(map(canonical, arguments))
    found = [
        problem
        for name, value in arguments.items()
        for problem in _check(name, value, known, given)
    ]
    counted = _counted(arguments, found, rules.policy)
    return (*found, *rules.check_pins(counted), *_duplicates(arguments))


def _counted(
    arguments: Mapping[str, object], found: Collection[Problem], listed: Policy
) -> dict[str, object]:
    """Return the arguments that the planner counts with, of those that the parser takes."""
    # A value that the parser refuses is not looked at again: one problem for one mistake.
    wrong = {
        canonical(problem.path.partition(".")[0])
        for problem in found
        if problem.code not in _REFUSED
    }
    return {
        name: value
        for name, value in arguments.items()
        if canonical(name) not in wrong and _is_counted_in(canonical(name), listed)
    }


_REFUSED: Final = frozenset({"EngineArgumentForbidden", "EngineArgumentOwned"})
"""Codes of arguments that the parser takes."""


def _is_counted_in(name: str, listed: Policy) -> bool:
    """Return whether the planner counts with an option, or with a key of the object that it is."""
    return any(counted == name or counted.startswith(f"{name}.") for counted in listed.counted)


def check_features(features: Mapping[str, str], version: str, rules: Rules) -> tuple[Problem, ...]:
    """Return why a version cannot be told more than the plan.

    Args:
        features: option that a field of the spec turns into, to the path of that field.
        version: the engine's version; without an option list it is told only the plan.
        rules: the engine's.
    """
    missing = rules.policy.missing
    unsaid = tuple(
        _missing(path, missing[option], rules.tables)
        for option, path in features.items()
        if option in missing
    )
    if unsaid or option_table(version, rules.tables) is not None:
        return unsaid
    return tuple(
        replace(_no_table(option, version, rules.tables), path=path)
        for option, path in features.items()
    )


def _missing(path: str, reason: str, tables: Tables) -> Problem:
    return Problem(
        code="EngineFeatureMissing",
        path=path,
        what=path,
        limit=f"cannot be passed to {tables.engine}",
        gap=reason,
        remedy="leave it out, or use engine.name: vLLM",
    )


def argument_list(arguments: Mapping[str, object], version: str, rules: Rules) -> tuple[str, ...]:
    """Return checked arguments as argv, sorted by name: a word for option and value.

    >>> from shardwright.engines.vllm.policy import RULES
    >>> said = {"seed": 7, "enable_prefix_caching": False, "enforce-eager": True}
    >>> argument_list(said, "0.33.0", RULES)
    ('--no-enable-prefix-caching', '--enforce-eager', '--seed=7')
    """
    table = option_table(version, rules.tables) or {}
    # Sorted, because the order of a spec must not be another template.
    named = sorted((canonical(name), value) for name, value in arguments.items())
    told = [(name, value, table.get(name)) for name, value in named]
    words = (
        _words(name, value, option)
        for name, value, option in told
        if option is None or not option.key
    )
    return tuple(word for each in words for word in each if word)


def configuration(
    arguments: Mapping[str, object], version: str, rules: Rules
) -> Mapping[str, object]:
    """Return the checked arguments of the engine's configuration file, by its keys."""
    table = option_table(version, rules.tables) or {}
    found = {canonical(name): value for name, value in arguments.items()}
    return {
        table[name].key: as_object(_typed(table[name].type, value))
        for name, value in found.items()
        if name in table and table[name].key
    }


def _typed(kind: str, value: object) -> object:
    # A number written as text is a number in the file.
    return convert(kind, value) if isinstance(value, str) else value


def _words(name: str, value: object, option: Option | None) -> tuple[str, ...]:
    flag = option.flag if option else f"--{name}"
    if isinstance(value, bool):
        return (flag if value else option.off if option else f"--no-{name}",)
    return (
        (flag, *_each(value))
        if option and option.many
        # Joined by an equals sign: a value that begins with a dash would be read as the next
        # option.
        else (f"{flag}={_spelled(value)}",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What arguments are checked against."""

    table: Mapping[str, Option]
    keys: Keys
    rules: Rules
    admitted: frozenset[str]
    collectors: frozenset[str]

    def takes(self, option: str, value: object) -> bool:
        """Return whether everybody may set this value of an option that is otherwise refused."""
        listed = self.rules.policy
        collector = option == listed.collector and value in self.collectors
        return collector or _spelled(value) in listed.harmless.get(option, frozenset())


def _check(name: str, value: object, known: _Known, given: Collection[str]) -> Iterator[Problem]:
    option = _find(name, known.table)
    if option is None:
        yield _unknown(name, known.table, known.rules.tables)
        return
    if known.keys.inside(option.key):
        yield from _check_object(as_object(value), option, known)
        return
    # Another option that is set, too, brings values that the parser's list does not have.
    told = replace(option, choices=()) if option.opened_by in given else option
    problem = _forbidden(name, value, option, known) or _check_option(name, told, value)
    if problem:
        yield problem


def _check_object(value: object, option: Option, known: _Known) -> Iterator[Problem]:
    """Return the faults of an object's keys, or else the keys that nobody may set."""
    wrong = tuple(key_problems(option.key, value, known.keys))
    yield from wrong
    if not wrong:
        for path, inner in leaves(option.key, value, known.keys):
            key = replace(option, name=canonical(path), flag=path)
            problem = _forbidden(path, inner, key, known)
            if problem:
                yield problem


def _find(name: str, table: Mapping[str, Option]) -> Option | None:
    wanted = canonical(name)
    if wanted in table:
        return table[wanted]
    return next((option for option in table.values() if wanted in option.aliases), None)


def _forbidden(name: str, value: object, option: Option, known: _Known) -> Problem | None:
    listed = known.rules.policy
    own = listed.listed_as(option.name)
    admissible = listed.admissible
    admitted = own in admissible and own in known.admitted
    if own in listed.allowed or own in listed.counted or admitted or known.takes(own, value):
        return None if canonical(name) == option.name else _another_name(name, option.name)
    if own in listed.owned:
        remedy = listed.owned[own]
        return Problem(
            code="EngineArgumentOwned",
            path=name,
            what=option.flag,
            limit="is set by shardwright",
            remedy=remedy,
        )
    reason = admissible.get(own) or listed.incompatible.get(own, policy.UNLISTED)
    ask = ", or ask the operator's administrator to admit it" if own in admissible else ""
    return Problem(
        code="EngineArgumentForbidden",
        path=name,
        what=option.flag,
        limit="is not allowed",
        gap=f"because it {reason}",
        remedy=f"leave it out{ask}; docs/engines.md lists the arguments that are allowed",
    )


def _another_name(name: str, own: str) -> Problem:
    return Problem(
        code="EngineArgumentUnknown",
        path=name,
        what=f"{name!r}",
        limit=f"is another name of {own}",
        remedy=f"write {own}",
    )


def _check_option(name: str, option: Option, value: object) -> Problem | None:
    wanted = _mismatch(option, value)
    if wanted is None:
        return None
    return Problem(
        code="EngineArgumentInvalid",
        path=name,
        what=f"{option.flag} {_spelled(value)!r}",
        limit=f"must be {wanted}",
        remedy="correct the value",
    )


def _mismatch(option: Option, value: object) -> str | None:
    if option.switch:
        return None if isinstance(value, bool) else "true or false"
    if value is None or not _may_be(value, option):
        return "a single value"
    values = _each(value) if option.many else (_spelled(value),)
    # argparse ends a list of values at the first word that begins with a dash.
    if not values or any(each.startswith("-") for each in values if option.many):
        return "one value or several, none of which begins with a dash"
    if option.optional and values in {("",), ("None",)}:
        return None
    if option.choices and not {_choice(option.type, each) for each in values} <= set(
        option.choices
    ):
        return f"one of {', '.join(option.choices)}"
    parses = all(_parses(option.type, each) for each in values)
    return _unknown_key(option, values[0]) if parses else WORDS.get(option.type, "JSON")


def _may_be(value: object, option: Option) -> bool:
    """Return whether a list or an object can be what the parser takes, and no switch's value."""
    if isinstance(value, list | tuple):
        return option.many or option.type in JSON_VALUES
    if isinstance(value, Mapping):
        return option.type in JSON_VALUES | JSON_OBJECTS
    return not isinstance(value, bool)


def _each(value: object) -> tuple[str, ...]:
    """Return the words of an option that takes several: a list's items, or those of a text."""
    items = value if isinstance(value, list | tuple) else _spelled(value).split()
    return tuple(map(_spelled, items))


def _choice(kind: str, text: str) -> str:
    if kind == "<lambda>":
        return text.lower().replace("-", "_")
    return text.lower() if kind == "parse_reasoning_parser" and text.lower() == "none" else text


def _unknown_key(option: Option, text: str) -> str | None:
    if not option.keys:
        return None
    found = convert(option.type, text)
    fine = isinstance(found, dict) and found.keys() <= set(option.keys)
    return None if fine else f"an object of JSON with no keys but {', '.join(option.keys)}"


def _parses(kind: str, text: str) -> bool:
    try:
        convert(kind, text)
    except (ValueError, RecursionError):
        return False
    return True


def _spelled(value: object) -> str:
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


def _unknown(name: str, table: Mapping[str, Option], tables: Tables) -> Problem:
    close = get_close_matches(canonical(name).removeprefix("no-"), table, n=1)
    hint = (
        f"did you mean {close[0]}?"
        if close
        else "write the option's full name without leading dashes"
    )
    return Problem(
        code="EngineArgumentUnknown",
        path=name,
        what=f"{name!r}",
        limit=f"is no option of this {tables.engine}",
        remedy=hint,
    )


def _no_table(name: str, version: str, tables: Tables) -> Problem:
    return Problem(
        code="EngineArgumentUnchecked",
        path=name,
        what=f"the options of {tables.engine} {version}",
        limit="are not known to this release",
        gap="which therefore passes only the options that a plan needs",
        remedy=f"leave it out or use {tables.engine} {' or '.join(tables.versions)}",
    )
