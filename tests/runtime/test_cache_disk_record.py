"""A block as the bytes of a file: exactly what was written, or nothing that is believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_runtime.cache import disk_record, keys
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.cache.formats import Format
from runtime.disk_records import BYTES_OF, record
from runtime.host_tier import LINEAGE, evicted


@given(
    st.binary(min_size=32, max_size=32),
    st.lists(st.integers(0, 2**32 - 1), max_size=40),
    st.sampled_from(Format),
    st.binary(max_size=200),
)
def test_a_record_comes_back_as_it_was(
    parent: bytes, token_ids: list[int], fmt: Format, payload: bytes
) -> None:
    key = keys.chain(parent, token_ids, fmt)
    data = disk_record.encode(Record(LINEAGE, key, parent, token_ids, fmt, payload))
    found = disk_record.decode(data, LINEAGE, {fmt: len(payload)}, key)
    assert found == Record(LINEAGE, key, parent, tuple(token_ids), fmt, payload)


@given(st.data())
def test_no_flipped_bit_and_no_missing_byte_is_ever_believed(data: st.DataObject) -> None:
    whole = disk_record.encode(record(1))
    bad = bytearray(whole)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, 8 * len(whole) - 1))
        bad[place // 8] ^= 1 << place % 8
    else:
        del bad[data.draw(st.integers(0, len(whole) - 1)) :]
    with pytest.raises(disk_record.Unusable):
        disk_record.decode(bytes(bad), LINEAGE, BYTES_OF, record(1).key)


def test_a_whole_record_whose_key_is_not_its_own_is_damaged() -> None:
    other = evicted(2).key
    lie = disk_record.encode(
        Record(LINEAGE, other, record(1).parent_key, record(1).token_ids, Format.FULL, bytes(64))
    )
    with pytest.raises(disk_record.Unusable, match="key is not that of its tokens") as caught:
        disk_record.decode(lie, LINEAGE, BYTES_OF, other)
    assert caught.value.reason == disk_record.DAMAGED
    with pytest.raises(disk_record.Unusable, match="key"):
        disk_record.decode(disk_record.encode(record(1)), LINEAGE, BYTES_OF, other)
