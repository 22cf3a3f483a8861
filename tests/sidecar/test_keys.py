import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken_sidecar import keys

SECRET = "sk-s3cret-0123456789"
HASH = hashlib.sha256(SECRET.encode()).hexdigest()


def parse(text: str) -> tuple[keys.Entry, ...]:
    return keys.parse(text.encode())


def error(text: str) -> str:
    with pytest.raises(keys.BadKeysError) as caught:
        parse(text)
    return str(caught.value)


def test_every_field_is_read() -> None:
    (entry,) = parse(
        f"""
        - name: mobile-app
          sha256: {HASH}
          tenant: mobile
          maxClass: batch
          weight: 3
          requestsPerMinute: 600
          tokensPerMinute: "100000"
        """
    )
    assert entry == keys.Entry("mobile-app", keys.hashed(SECRET), "mobile", "batch", 3, 600, 100_000)


def test_a_plain_key_is_hashed_and_not_kept() -> None:
    (plain,) = parse(f"- {{name: a, key: {SECRET}}}")
    (by_hash,) = parse(f"- {{name: a, sha256: {HASH.upper()}}}")
    assert plain == by_hash
    assert SECRET not in repr(plain)


def test_what_is_left_out_has_a_default() -> None:
    (entry,) = parse(f"- {{name: a, key: {SECRET}, tenant: , maxClass: ~, tokensPerMinute: null}}")
    assert entry == keys.Entry("a", keys.hashed(SECRET), "a", "", 1, None, None)


@pytest.mark.parametrize("word", ["no", "on", "1e3", "0x10", "2024-01-01", "12345678", "012"])
def test_no_type_is_guessed(word: str) -> None:
    (entry,) = parse(f"- {{name: {word}, key: 87654321, tenant: {word}}}")
    assert (entry.name, entry.tenant, entry.sha256) == (word, word, keys.hashed("87654321"))
    (quoted,) = parse(f"- {{name: '{word}', key: \"87654321\"}}")
    assert quoted.name == word


def test_a_hash_of_digits_alone_is_a_hash() -> None:
    (entry,) = parse(f"- {{name: a, sha256: {'7' * 64}}}")
    assert entry.sha256 == bytes.fromhex("7" * 64)


def test_an_empty_list_accepts_no_key_and_an_empty_file_is_a_mishap() -> None:
    assert parse("[]") == ()
    for text in ("", "\n", "# nothing yet\n", "---\n", "null"):
        assert "list of entries" in error(text)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (f"name: b, sha256: {HASH}, key: {SECRET}", "either sha256 or key"),
        ("name: b", "either sha256 or key"),
        (f"name: b, sha256: {HASH[:-1]}", "sha256 must be 64 hex digits"),
        ("name: b, key: short", "key must be 8 to 512"),
        ("name: b, key: 'with a blank in it'", "key must be"),
        (f"name: b, key: {SECRET}, tenant: 'two words'", "tenant must be"),
        (f"name: b, key: {SECRET}, maxClass: Interactive", "maxClass must be"),
        (f"name: b, key: {SECRET}, weight: 0", "weight must be a whole number from 1"),
        (f"name: b, key: {SECRET}, weight: 1.5", "weight must be"),
        (f"name: b, key: {SECRET}, requestsPerMinute: -1", "requestsPerMinute must be"),
        (f"name: b, key: {SECRET}, tokensPerMinute: lots", "tokensPerMinute must be"),
        (f"name: b, key: {SECRET}, expires: soon", "unknown field expires; fields are name"),
    ],
)
def test_a_wrong_entry_is_named_by_place_and_name(fields: str, says: str) -> None:
    message = error(f"- {{name: a, key: {SECRET}-a}}\n- {{{fields}}}")
    assert message.startswith("entry 2 (b): ")
    assert says in message
    assert SECRET not in message


def test_entries_that_contradict_each_other() -> None:
    same_name = error(
        f"- {{name: a, key: {SECRET}}}\n- {{name: b, key: {SECRET}-b}}\n- {{name: a, key: {SECRET}-c}}"
    )
    assert same_name == "entry 3 (a): entry 1 has the same name"
    same_key = error(f"- {{name: a, key: {SECRET}}}\n- {{name: b, sha256: {HASH}}}")
    assert same_key == "entry 2 (b): entry 1 (a) has the same key"
    weights = error(
        f"- {{name: a, key: {SECRET}, tenant: t}}\n- {{name: b, key: {SECRET}-b, tenant: t, weight: 2}}"
    )
    assert weights.startswith("entry 2 (b): its weight differs from that of entry 1 (a)")


@pytest.mark.parametrize(
    "text",
    [
        f"- name: a\n\tkey: {SECRET}",
        f"- name: *{SECRET}",
        f"- name: a\n  key: &{SECRET} x",
        f"- name: a\n  key: !{SECRET} x",
        f"- {SECRET}",
        f"- {{{SECRET}}}",
        f"- {{name: a, {SECRET}: x}}",
        f"- {{name: {SECRET}, key: {SECRET}}}",
        f"- {{name: '{SECRET} and more', key: x}}",
        f"- {{name: a, key: [{SECRET}]}}",
        f"- {{name: a, key: {SECRET}, key: {SECRET}}}",
        f"- {{name: a, tenant: '{SECRET} x', key: {SECRET}}}",
        f"- {{name: a, sha256: {SECRET}}}",
        f"- {{name: a, weight: {SECRET}, key: {SECRET}}}",
        f"name: {SECRET}",
        f"- {{name: a, key: {SECRET}}}\n--- {SECRET}",
        f"- [{{name: {SECRET}}}]",
        f"%{SECRET}\n---\n[]",
        f"- 'never closed {SECRET}",
        f"- @{SECRET}",
    ],
)
def test_no_message_repeats_a_value(text: str) -> None:
    message = error(text)
    assert SECRET not in message
    assert "entry" in message or "line" in message or "keys.yaml" in message


@pytest.mark.parametrize("text", ["[" * 200_000, "- {a: " * 5_000, "- - - " * 5_000])
def test_deep_nesting_ends_at_once(text: str) -> None:
    error(text)


def test_sizes_are_bounded() -> None:
    assert "larger than" in error("#" * (keys.LARGEST_FILE_BYTES + 1))
    many = "".join(f"- {{name: k{i}, sha256: '{i:064x}'}}\n" for i in range(keys.MOST_KEYS + 1))
    assert "more than 1000 entries" in error(many)
    assert len(parse(many[: many.rindex("-")])) == keys.MOST_KEYS
    with pytest.raises(keys.BadKeysError, match="UTF-8"):
        keys.parse(b"- name: \xff")


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused_as_bad_keys(content: bytes) -> None:
    try:
        entries = keys.parse(content)
    except keys.BadKeysError:
        return
    assert all(entry.name and len(entry.sha256) == 32 for entry in entries)


@given(st.text(alphabet=" -{}[]:,'\"&*!|>%@\n\tnamekysh0", max_size=60))
def test_any_text_parses_or_is_refused_as_bad_keys(text: str) -> None:
    test_any_bytes_parse_or_are_refused_as_bad_keys.hypothesis.inner_test(text.encode())  # type: ignore[attr-defined]
