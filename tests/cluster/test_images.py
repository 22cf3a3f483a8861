from pathlib import Path

import pytest

from cluster import images, layout
from cluster.errors import ClusterError


def test_bad_archives_and_a_stopped_cluster_are_told_plainly(tmp_path: Path) -> None:
    where = layout.Layout(checkout=tmp_path, cache=tmp_path, run=tmp_path / "run")
    with pytest.raises(ClusterError, match="there is no file"):
        images.load(where, tmp_path / "none.tar")
    text = tmp_path / "text.tar"
    text.write_text("not a tar")
    with pytest.raises(ClusterError, match="is no tar archive"):
        images.load(where, text)
    with pytest.raises(ClusterError, match="not running"):
        images.is_loaded(where, "localhost/x:1")
    assert not images.is_serving(where)
