from pathlib import Path

import pytest

from cluster import addresses, api, pki


def test_a_silent_server_is_not_ready_and_has_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pki.make(tmp_path / "pki")
    monkeypatch.setattr(addresses, "API_PORT", 1)
    client = api.Api(tmp_path / "pki")
    assert not client.is_ready()
    assert client.get("/api/v1/namespaces/default") is None
