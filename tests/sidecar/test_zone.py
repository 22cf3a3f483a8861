from pathlib import Path

import pytest

from firsttoken_api import names
from firsttoken_sidecar import zone


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (b'app="chat"\ntopology.kubernetes.io/zone="eu-1a"\nx="y"', "eu-1a"),
        (b'topology.kubernetes.io/zone=""', ""),
        (b'my.topology.kubernetes.io/zone="no"\ntopology.kubernetes.io/zones="no"', ""),
        (b"", ""),
        (b"\xff\xfe", ""),
    ],
)
def test_the_label_is_read_from_its_line(labels: bytes, expected: str) -> None:
    assert zone.parse_labels(labels) == expected


def test_a_setting_wins(tmp_path: Path) -> None:
    (tmp_path / names.POD_LABELS_FILE).write_text(f'{zone.LABEL}="eu-1a"')
    assert zone.Zone("mine", tmp_path, lambda: 0.0).name() == "mine"


def test_a_label_that_comes_later_is_found(tmp_path: Path) -> None:
    now = 0.0
    found = zone.Zone("", tmp_path, lambda: now)
    assert found.name() == ""
    (tmp_path / names.POD_LABELS_FILE).write_text(f'{zone.LABEL}="eu-1a"')
    now = zone.READ_EVERY_S
    assert found.name() == "eu-1a"
