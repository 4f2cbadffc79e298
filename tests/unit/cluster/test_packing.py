"""What is kept compressed comes back as it was, whatever was packed first."""

import zlib
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from shardwright.cluster.packing import DICTIONARY_BYTES_MAX, packed, plain, unpacked

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
)


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_a_packed_value_is_unpacked_as_it_was(values: list[object]) -> None:
    sort = str(uuid4())

    assert [unpacked(packed(plain(value), sort)) for value in values] == values


def test_a_first_text_that_is_larger_than_what_can_be_referred_to_comes_back() -> None:
    sort, large = (
        str(uuid4()),
        [str(uuid4()) for _ in range(DICTIONARY_BYTES_MAX // 20)],
    )

    assert [unpacked(packed(plain(large), sort)) for _ in range(2)] == [large, large]


def test_a_text_like_the_first_of_its_sort_takes_a_tenth_of_what_it_takes_alone() -> (
    None
):
    sort, words = str(uuid4()), [str(uuid4()) for _ in range(200)]
    packed(plain({"name": "first", "words": words}), sort)
    text = plain({"name": "second", "words": words})

    assert len(packed(text, sort).content) * 10 < len(zlib.compress(text))
