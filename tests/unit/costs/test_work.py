"""What a step computes is counted from the model's tensors."""

from shardwright.costs.work import ModelWork
from tests.support.builders_plan import a_model


def test_a_layer_is_as_many_products_as_it_has_matrices() -> None:
    """Llama: query, key, value, output, gate, up, down. DeepSeek has two more before its K/V, a router and shared experts."""
    llama, deepseek = (ModelWork.of(a_model(name)) for name in ("llama-8b", "deepseek-v3"))

    assert llama.products[-1] == 32 * 7
    assert deepseek.products[-1] == 3 * 8 + 58 * 12
