"""The reference page is the generated one."""

from pathlib import Path

from shardwright.api.conditions import Reason
from shardwright.api.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "shardedmodel.md"


def test_the_kept_page_is_the_generated_one(*, update_goldens: bool) -> None:
    """Run this test with ``--update-goldens`` when it fails, and read the diff."""
    if update_goldens:
        PAGE.write_text(reference())

    assert PAGE.read_text() == reference()


def test_the_page_has_every_field_and_every_reason() -> None:
    page = reference()

    assert "| `model.weights.huggingFace.tokenSecretRef.name` | string | required |" in page
    assert "| `replicas` | integer | `1` | 0 to 1,000 |" in page
    assert all(f"| `{reason}` |" in page for reason in Reason)
