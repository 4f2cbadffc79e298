"""Equal models are one object, so that results kept per model are found by identity."""

from weakref import ref

from shardwright.modelspec.model_spec import ModelSpec, interned
from tests.support.builders_model import a_small_model


def kept(hidden: int) -> ModelSpec:
    return interned(a_small_model(hidden_size=hidden))


def test_however_many_models_come_between_an_equal_one_is_the_same_object() -> None:
    first = kept(64)
    others = [kept(64 * number) for number in range(2, 300)]

    assert kept(64) is first
    assert len({id(model) for model in (first, *others)}) == 299


def test_a_model_that_nobody_has_any_more_is_not_kept() -> None:
    gone = ref(kept(32))

    assert gone() is None
