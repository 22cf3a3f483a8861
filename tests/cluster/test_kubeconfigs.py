import base64
import json
from pathlib import Path

from cluster import kubeconfigs, pki


def test_a_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "kubeconfig"
    for _ in range(2):
        kubeconfigs.write(path, tmp_path, pki.ADMIN)
    document = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(document["users"][0]["user"]["client-key-data"]) == b"admin.key"
    assert document["current-context"] == document["contexts"][0]["name"]
