import asyncio
import logging
from pathlib import Path

import pytest
from multidict import CIMultiDict

from firsttoken_api import errors, names
from firsttoken_api.state import KeyUse, SidecarState
from firsttoken_sidecar import auth, keys, metrics
from sidecar import fakes

SECRET = "sk-s3cret-0123456789"
OTHER = "sk-0ther-9876543210"


def entry(name: str, key: str, **more: object) -> bytes:
    fields = "".join(f", {field}: {value}" for field, value in more.items())
    return f"- {{name: {name}, key: {key}{fields}}}\n".encode()


@pytest.fixture
def secret(tmp_path: Path) -> fakes.Mounts:
    return fakes.Mounts(tmp_path)


def following(secret: fakes.Mounts, counts: metrics.Counts | None = None) -> auth.Auth:
    return auth.Auth(secret.auth, lambda: 0.0, counts or metrics.Counts())


def bearing(*values: str) -> CIMultiDict[str]:
    return CIMultiDict([("Host", "x"), *(("authorization", value) for value in values)])


def identify(asked: auth.Auth, key: str) -> auth.Caller:
    return asked.identify(bearing(f"Bearer {key}"))


def test_without_a_folder_everybody_may_ask() -> None:
    asked = auth.Auth(None, lambda: 0.0, metrics.Counts())
    assert asked.identify(bearing("Bearer anything")) is auth.ANONYMOUS
    assert (asked.is_on, asked.error, asked.why_not_ready()) == (False, "", "")


def test_a_key_tells_its_caller(secret: fakes.Mounts) -> None:
    secret.write_keys(
        entry("a", SECRET, tenant="t", maxClass="batch", weight=2, requestsPerMinute=5, tokensPerMinute=9)
        + entry("b", OTHER)
    )
    asked = following(secret)
    assert asked.is_on
    assert identify(asked, SECRET) == auth.Caller("a", "t", "batch", 2, 5, 9)
    assert identify(asked, OTHER) == auth.Caller("b", "b")
    assert asked.identify(bearing(f"bEARER   {OTHER} ")).name == "b"


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("",),
        ("Bearer",),
        ("Bearer ",),
        (SECRET,),
        (f"Basic {SECRET}",),
        (f"Bearer {SECRET}x",),
        (f"Bearer {SECRET[:-1]}",),
        (f"Bearer {keys.hashed(SECRET).hex()}",),
        ("Bearer " + "x" * 100_000,),
        ("Bearer \udcff\udcfe",),
        (f"Bearer {SECRET}", f"Bearer {SECRET}"),
    ],
)
def test_what_is_no_valid_key_is_refused(
    secret: fakes.Mounts, values: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    secret.write_keys(entry("a", SECRET))
    counts = metrics.Counts()
    asked = following(secret, counts)
    with pytest.raises(errors.UnauthorizedError) as caught:
        asked.identify(bearing(*values))
    assert caught.value.headers() == {"WWW-Authenticate": "Bearer"}
    assert caught.value.body()["error"]["code"] == "invalid_api_key"
    assert counts.refusals[metrics.RefusalReason.UNAUTHORIZED] == 1
    assert SECRET not in str(caught.value) + caplog.text


def test_many_refusals_are_one_line(secret: fakes.Mounts, caplog: pytest.LogCaptureFixture) -> None:
    secret.write_keys(entry("a", SECRET))
    asked = following(secret)
    for number in range(50):
        with pytest.raises(errors.UnauthorizedError):
            identify(asked, f"guess-{number}")
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "request refused: wrong API key"
    ]
    assert "guess" not in caplog.text


def test_a_revoked_key_is_refused_and_a_new_one_let_in_after_the_swap(secret: fakes.Mounts) -> None:
    secret.write_keys(entry("a", SECRET))
    asked = following(secret)
    identify(asked, SECRET)
    secret.write_keys(entry("b", OTHER))
    asked.reload()
    assert identify(asked, OTHER).name == "b"
    with pytest.raises(errors.UnauthorizedError):
        identify(asked, SECRET)


@pytest.mark.parametrize("bad", [b"", b"- {name: b}", b"- {name: b, key: \xff}", b"no list"])
def test_a_malformed_file_keeps_the_last_good_one(
    secret: fakes.Mounts, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    counts = metrics.Counts()
    secret.write_keys(entry("a", SECRET))
    asked = following(secret, counts)
    secret.write_keys(bad)
    asked.reload()
    asked.reload()
    assert identify(asked, SECRET).name == "a"
    assert asked.error
    assert asked.why_not_ready() == ""
    assert (counts.keys_loaded, counts.keys_errors) == (1, 1)
    kept_out = [r for r in caplog.records if r.getMessage() == "API keys kept out"]
    assert len(kept_out) == 1
    secret.write_keys(entry("b", OTHER))
    asked.reload()
    assert (asked.error, identify(asked, OTHER).name) == ("", "b")


def test_without_one_good_file_nobody_is_let_in(secret: fakes.Mounts) -> None:
    counts = metrics.Counts()
    asked = following(secret, counts)
    assert asked.why_not_ready() == "no API keys: there is no keys.yaml"
    with pytest.raises(errors.KeysUnavailableError) as caught:
        identify(asked, SECRET)
    assert caught.value.status == 503
    assert counts.refusals[metrics.RefusalReason.KEYS_UNAVAILABLE] == 1
    secret.write_keys(b"- {name: a}")
    asked.reload()
    assert "entry 1 (a)" in asked.why_not_ready()
    secret.write_keys(entry("a", SECRET))
    asked.reload()
    assert (asked.why_not_ready(), identify(asked, SECRET).name) == ("", "a")


def test_a_file_that_vanishes_keeps_its_keys(secret: fakes.Mounts) -> None:
    secret.write_keys(entry("a", SECRET))
    asked = following(secret)
    (secret.auth / names.KEYS_FILE).unlink()
    asked.reload()
    assert identify(asked, SECRET).name == "a"
    assert asked.error == "there is no keys.yaml"


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / names.KEYS_FILE).mkdir()
    asked = auth.Auth(tmp_path, lambda: 0.0, metrics.Counts())
    assert "directory" in asked.error.lower()


def test_limits_are_counted_and_forgotten_with_the_key(
    secret: fakes.Mounts, caplog: pytest.LogCaptureFixture
) -> None:
    secret.write_keys(entry("a", SECRET, requestsPerMinute=1))
    counts = metrics.Counts()
    asked = following(secret, counts)
    who = identify(asked, SECRET)
    asked.take(who, 10).settle(3)
    with pytest.raises(errors.RateLimitedError) as caught:
        asked.take(who, 10)
    assert caught.value.headers() == {"Retry-After": "60"}
    assert counts.refusals[metrics.RefusalReason.RATE_LIMITED] == 1
    assert "over the limit" in caplog.text
    secret.write_keys(entry("b", OTHER))
    asked.reload()
    secret.write_keys(entry("a", SECRET, requestsPerMinute=1))
    asked.reload()
    asked.take(identify(asked, SECRET), 10)


def test_a_limit_is_shared_with_peers_through_what_they_report(secret: fakes.Mounts) -> None:
    secret.write_keys(entry("a", SECRET, requestsPerMinute=2, tokensPerMinute=100) + entry("b", OTHER))
    here, there = following(secret), following(secret)
    assert there.uses() == {}
    here.heard("peer", SidecarState(key_uses=there.uses()))
    for asked in (here, there):
        asked.take(identify(asked, SECRET), 10)
        asked.take(identify(asked, OTHER), 10)
    assert there.uses() == {"a": KeyUse(requests_total=1, tokens_total=10)}
    said = SidecarState(key_uses=there.uses()).model_dump_json()
    here.heard("peer", SidecarState.model_validate_json(said))
    with pytest.raises(errors.RateLimitedError, match="2 requests"):
        here.take(identify(here, SECRET), 10)
    auth.Auth(None, lambda: 0.0, metrics.Counts()).heard("peer", SidecarState(key_uses=there.uses()))


async def test_the_file_is_followed(secret: fakes.Mounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "INTERVAL_S", 0.01)
    secret.write_keys(b"[]")
    asked = following(secret)
    following_it = asyncio.create_task(asked.run())
    secret.write_keys(entry("a", SECRET))

    def is_known() -> bool:
        try:
            return bool(identify(asked, SECRET).name)
        except errors.UnauthorizedError:
            return False

    await fakes.until(is_known)
    following_it.cancel()
    await asyncio.wait([following_it])
