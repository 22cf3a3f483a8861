"""Starting the process: a wrong setting is one line and status 2."""

import asyncio

import pytest

from firsttoken_operator import __main__, client, kinds, settings


def test_a_wrong_setting_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FIRSTTOKEN_RUNTIME_IMAGE", raising=False)
    assert __main__.main() == 2
    assert "FIRSTTOKEN_RUNTIME_IMAGE" in capsys.readouterr().err


async def test_a_missing_crd_is_waited_for_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(__main__, "CRD_RETRY_S", 0.01)
    tries = 0

    class Api:
        async def list(self, kind: kinds.Kind, namespace: str | None, **_: object) -> list[object]:
            nonlocal tries
            tries += 1
            assert (kind, namespace) == (kinds.INFERENCE_SERVICE, "default")
            if tries < 4:
                raise client.NotFoundError("404 page not found", 404)
            return []

    chosen = settings.Settings(images=settings.Images("r", "s"))
    async with asyncio.timeout(5):
        await __main__._crds_exist(Api(), chosen, asyncio.Event())  # type: ignore[arg-type]
    assert tries == 4
    assert len(caplog.records) == 1
