"""Rules between fields, as the parser knows them; the API server's verdicts are compared on the
control plane.
"""

from shardwright.api.resource import parse_manifest
from shardwright.api.rules import RULES
from shardwright.errors import InputError, Problem
from tests.support.builders_resource import Manifest, a_sharded_model
from tests.support.rule_cases import RULE_CASES
from tests.support.schema_cases import violations


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in RULE_CASES} == {rule.code for rule in RULES}


def test_what_breaks_a_rule_is_refused_by_that_rule_alone() -> None:
    wrong = [
        (case, found)
        for case in RULE_CASES
        if (found := codes(a_sharded_model(**case.broken))) != [case.code]
    ]

    assert wrong == []


def test_what_keeps_a_rule_is_taken() -> None:
    wrong = [(case, found) for case in RULE_CASES if (found := codes(a_sharded_model(**case.kept)))]

    assert wrong == []


def test_what_breaks_a_bound_is_refused_where_it_stands() -> None:
    wrong = {
        case.name: found
        for case in violations()
        if case.path not in (found := paths(a_sharded_model() | {"spec": case.spec}))
    }

    assert wrong == {}


def codes(manifest: Manifest) -> list[str]:
    return [problem.code for problem in _problems(manifest)]


def paths(manifest: Manifest) -> set[str]:
    return {problem.path for problem in _problems(manifest)}


def _problems(manifest: Manifest) -> tuple[Problem, ...]:
    try:
        parse_manifest(manifest)
    except InputError as error:
        return error.problems
    return ()
