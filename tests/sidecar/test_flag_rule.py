import pytest

from firsttoken_api.hot_settings import EffectiveFlag
from firsttoken_api.state import FlagsState
from firsttoken_sidecar import flag_rule
from firsttoken_sidecar.flag_rule import Named, Step
from sidecar import fakes


def parsed(generation: int, *, enabled: bool = True) -> flag_rule.Document:
    return flag_rule.parse_document(fakes.document(generation, enabled=enabled))


def in_force(generation: int, *, enabled: bool = True) -> FlagsState:
    content_hash = parsed(generation, enabled=enabled).content_hash
    return FlagsState(generation=generation, hash=content_hash)


@pytest.mark.parametrize(
    ("document", "named", "first_generation", "state", "expected"),
    [
        (None, None, 0, in_force(1), Step.NO_DOCUMENT),
        (parsed(1), None, 1, None, Step.ENGINE_NOT_READY),
        # A fresh engine takes the newest, whatever the annotation says.
        (parsed(3), None, 3, FlagsState(), Step.APPLY),
        (parsed(3), Named(2, 0), 3, FlagsState(), Step.APPLY),
        (parsed(3), Named(4, 0), 3, FlagsState(), Step.APPLY),
        # What is in force is left alone.
        (parsed(3), Named(3, 1), 3, in_force(3), Step.IN_FORCE),
        (parsed(3), None, 3, FlagsState(generation=3), Step.IN_FORCE),
        # A newer document waits for its name.
        (parsed(4), None, 3, in_force(3), Step.NOT_NAMED),
        (parsed(4), Named(3, 9), 3, in_force(3), Step.NOT_NAMED),
        (parsed(4), Named(5, 1), 3, in_force(3), Step.NOT_NAMED),
        (parsed(4), Named(4, 1), 3, in_force(3), Step.APPLY),
        # Back to an older one, and other content under the same number.
        (parsed(4), Named(4, 1), 4, in_force(5), Step.APPLY),
        (parsed(4), Named(4, 2), 4, in_force(4, enabled=False), Step.APPLY),
        # An engine that started with other settings than this sidecar's first look.
        (parsed(3), None, 3, in_force(2), Step.APPLY),
    ],
)
def test_the_rule(
    document: flag_rule.Document | None,
    named: Named | None,
    first_generation: int,
    state: FlagsState | None,
    expected: Step,
) -> None:
    assert flag_rule.next_step(document, named, first_generation, state) is expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'firsttoken.dev/flags="12.3"', Named(12, 3)),
        (b'a="1"\nfirsttoken.dev/flags="12.3"\nkubernetes.io/x="y"\n', Named(12, 3)),
        (b'fake="firsttoken.dev/flags=\\"9.9\\""', None),
        (b'x/firsttoken.dev/flags="9.9"', None),
        (b'firsttoken.dev/flags="12"', None),
        (b'firsttoken.dev/flags=""', None),
        (b'firsttoken.dev/flags="' + b"9" * 5_000 + b'.1"', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_annotations_as_the_kubelet_writes_them(content: bytes, expected: Named | None) -> None:
    assert flag_rule.parse_annotations(content) == expected


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "document"),
        (b"{", "document"),
        (b"\xff", "document"),
        (b'{"generation": 0, "flags": [], "objective": {"ttft_p95_s": 1}}', "generation"),
        (b'{"generation": 1, "flags": [], "objective": {"ttft_p95_s": -1}}', "objective.ttft_p95_s"),
        (b'{"generation": 1, "flags": [{"name": "x"}], "objective": {"ttft_p95_s": 1}}', "flags.0.enabled"),
        (fakes.document(1).replace(b'"enabled":true', b'"enabled":false'), "hash"),
    ],
)
def test_a_bad_document_says_where(content: bytes, place: str) -> None:
    with pytest.raises(flag_rule.BadDocumentError, match=f"^flags.json: .*{place}"):
        flag_rule.parse_document(content)


@pytest.mark.parametrize(
    ("listed", "enabled", "expected"),
    [
        ({"chunked-prefill": False}, ("chunked-prefill", "prefix-cache"), ("chunked-prefill",)),
        ({"chunked-prefill": True}, ("chunked-prefill",), ()),
        ({"chunked-prefill": False}, (), ()),
        # Not listed: the flag's default, on or off; one that nobody knows is to be off.
        ({}, ("prefix-cache",), ()),
        ({}, ("kv-int8", "prefix-cache", "of-tomorrow"), ("kv-int8", "of-tomorrow")),
    ],
)
def test_what_is_taken_back(
    listed: dict[str, bool], enabled: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    settings = parsed(1).settings.model_copy(
        update={"flags": tuple(EffectiveFlag(name=name, enabled=on) for name, on in listed.items())}
    )
    assert flag_rule.taken_back(settings, FlagsState(generation=1, enabled=enabled)) == expected
