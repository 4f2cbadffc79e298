"""Which engine arguments a user may set, and whether the engine's parser takes the values.

Every argument of a version without a table is refused, and every option not in the policy.

What the arguments that the planner counts with fix in a plan is read by each engine's own ``pins``.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Final

from shardwright.engines import policy
from shardwright.engines.object_keys import Keys, as_object, key_problems, key_table, leaves
from shardwright.engines.parser_values import JSON_OBJECTS, JSON_VALUES, WORDS, convert, invalid
from shardwright.engines.policy import Option, Policy, Tables, canonical, option_table
from shardwright.errors import Problem
from shardwright.layouts.layout import EngineOverrides


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The options an engine's parser takes, and which of them a user may set.

    ``pins`` are the plan's values that checked arguments fix, ``check_pins`` those among the
    counted ones that the parser takes and no plan can count with.
    """

    tables: Tables
    policy: Policy
    pins: Callable[[Mapping[str, object], Policy], Pins]
    check_pins: Callable[[Mapping[str, object]], tuple[Problem, ...]] = lambda _counted: ()


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
    return None if wanted is None else invalid(name, value, wanted, said=option.flag)


def _mismatch(option: Option, value: object) -> str | None:
    if option.switch:
        return None if isinstance(value, bool) else WORDS["bool"]
    if value is None or not _may_be(value, option):
        return _wanted(option)
    values = _each(value) if option.many else (_spelled(value),)
    # argparse ends a list of values at the first word that begins with a dash.
    if not values or any(each.startswith("-") for each in values if option.many):
        return "one value or several, none of which begins with a dash"
    if option.optional and values in {("",), ("None",)}:
        return None
    chosen = {_choice(option.type, each) for each in values}
    if option.choices and not chosen <= set(option.choices):
        return _wanted(option)
    parses = all(_parses(option.type, each) for each in values)
    return _unknown_key(option, values[0]) if parses else _wanted(option)


def _wanted(option: Option) -> str:
    """Return the values that the parser takes, in words."""
    word = (
        f"one of {', '.join(option.choices)}"
        if option.choices
        else WORDS.get(option.type, "JSON" if option.type in JSON_VALUES else "a single value")
    )
    return f"one value or several, each {word}" if option.many else word


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
