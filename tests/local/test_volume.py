"""The folder behind the claim `models`."""

from pathlib import Path

from local import volume


def test_a_model_is_copied_once_and_readable_for_all(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"GGUF")
    source.chmod(0o600)
    target = tmp_path / "models" / volume.MODEL_FILE
    volume.place(source, target)
    first = target.stat()
    assert first.st_mode & 0o444 == 0o444
    volume.place(source, target)
    assert target.stat().st_ino == first.st_ino
    source.write_bytes(b"GGUF2")
    volume.place(source, target)
    assert target.read_bytes() == b"GGUF2"
    assert [path.name for path in target.parent.iterdir()] == [volume.MODEL_FILE]


def test_claim_and_volume_name_each_other(tmp_path: Path) -> None:
    persistent, claim = volume.objects(tmp_path)
    assert claim["spec"]["volumeName"] == persistent["metadata"]["name"]
    reference = persistent["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == (volume.NAMESPACE, claim["metadata"]["name"])
    assert persistent["spec"]["hostPath"]["path"] == str(tmp_path)
