"""The reference page has everything; `make generate` writes it."""

from shardwright.api.conditions import Reason
from shardwright.api.reference import reference


def test_the_page_has_every_field_and_every_reason() -> None:
    page = reference()

    assert "| `model.weights.secretRef.name` | string | required |" in page
    assert "| `replicas` | integer | `1` | 0 to 1,000 |" in page
    assert all(f"| `{reason}` |" in page for reason in Reason)
