"""Asks an engine's own parser alone: no policy says whether an option may be set."""

from shardwright.engines.options import Rules, _check_option, _find, _no_table, _unknown
from shardwright.engines.policy import option_table
from shardwright.engines.vllm.policy import RULES
from shardwright.errors import Problem


def check_value(name: str, value: object, version: str, rules: Rules = RULES) -> Problem | None:
    """Return why the parser of ``version`` would refuse ``--name value``, or None.

    ``value`` is a bool for switches, a string as argv holds it, or its value as YAML reads it.
    """
    table = option_table(version, rules.tables)
    if table is None:
        return _no_table(name, version, rules.tables)
    option = _find(name, table)
    return (
        _unknown(name, table, rules.tables)
        if option is None
        else _check_option(name, option, value)
    )
