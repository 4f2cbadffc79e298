"""Signatures: what was signed verifies, and nothing else does, whichever of its parts another
has.
"""

import pytest

from shardwright.reconcile.record_object import SigningKeys, read_keys

KEYS = SigningKeys((b"the first key", b"the second key"))


def test_what_was_signed_verifies_and_with_any_other_part_it_does_not() -> None:
    signature = KEYS.sign("PlanRecord", "uid-1", "text")
    assert signature

    assert KEYS.verify(signature, "PlanRecord", "uid-1", "text")
    others = [
        ("Template", "uid-1", "text"),
        ("PlanRecord", "uid-2", "text"),
        ("PlanRecord", "uid-1", "texts"),
    ]
    moved = [("PlanRecord", "uid-", "1text"), ("PlanRecorduid-1", "", "text")]
    assert [KEYS.verify(signature, *parts) for parts in (*others, *moved)] == [False] * 5


@pytest.mark.parametrize("forged", ["", "0" * 64, "ü", "\x00", "F" * 10_000])
def test_what_is_no_signature_does_not_verify(forged: str) -> None:
    assert not KEYS.verify(forged, "PlanRecord", "uid-1", "text")


def test_the_first_key_signs_and_each_of_them_verifies_so_that_keys_can_be_changed() -> None:
    old, new = SigningKeys((b"old",)), SigningKeys((b"new",))
    both = SigningKeys((b"new", b"old"))
    by_old, by_both = old.sign("K", "u", "t") or "", both.sign("K", "u", "t") or ""

    assert (both.verify(by_old, "K", "u", "t"), new.verify(by_old, "K", "u", "t")) == (True, False)
    assert (by_both == new.sign("K", "u", "t"), old.verify(by_both, "K", "u", "t")) == (True, False)


def test_without_a_key_nothing_is_signed_and_nothing_verifies() -> None:
    assert SigningKeys().sign("K", "u", "t") is None
    assert not SigningKeys().verify("", "K", "u", "t")


def test_a_file_has_one_key_a_line() -> None:
    assert read_keys(f"{'a' * 32}\n\n  {'b' * 40}\n") == SigningKeys((b"a" * 32, b"b" * 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" \n\n", "it holds no key"),
        (f"{'a' * 32}\nshort", "the key in line 2 has 5 bytes, and needs 32"),
    ],
)
def test_a_file_without_a_usable_key_is_refused_with_the_limit(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_keys(text)


def test_no_key_is_in_what_is_printed_of_them() -> None:
    assert "key" not in repr(KEYS).removeprefix("SigningKeys")
