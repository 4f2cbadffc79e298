"""Rules between fields, as the parser knows them; the API server's verdicts are compared on the
control plane.
"""

import pytest

from shardwright.api.resource import parse_manifest
from shardwright.api.rules import RULES
from shardwright.errors import InputError
from tests.support.builders_resource import Manifest, a_sharded_model
from tests.support.rule_cases import RULE_CASES, RuleCase
from tests.support.schema_cases import Case, violations


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in RULE_CASES} == {rule.code for rule in RULES}


@pytest.mark.parametrize("case", RULE_CASES, ids=str)
def test_what_breaks_a_rule_is_refused_by_that_rule_alone(case: RuleCase) -> None:
    assert codes(a_sharded_model(**case.broken)) == [case.code]


@pytest.mark.parametrize("case", RULE_CASES, ids=str)
def test_what_keeps_a_rule_is_taken(case: RuleCase) -> None:
    assert codes(a_sharded_model(**case.kept)) == []


@pytest.mark.parametrize("case", list(violations()), ids=str)
def test_what_breaks_a_bound_is_refused_where_it_stands(case: Case) -> None:
    with pytest.raises(InputError) as caught:
        parse_manifest(a_sharded_model() | {"spec": case.spec})

    assert case.path in {problem.path for problem in caught.value.problems}


def codes(manifest: Manifest) -> list[str]:
    try:
        parse_manifest(manifest)
    except InputError as error:
        return [problem.code for problem in error.problems]
    return []
