import pytest

from firsttoken_runtime.bench import plot, summary
from runtime.bench_results import finished, round_


@pytest.mark.parametrize(
    ("name", "start"), [("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")], ids=["png", "svg"]
)
def test_it_is_drawn_with_and_without_kv_figures(tmp_path, name, start):
    plain = [round_("baseline", [1.0]), round_("paged", [])]
    full = [
        round_("baseline", [1.0], slots=summary.Slots(1, 2, 3)),
        round_("paged", [2.0], slots=summary.Slots(1, 2, 3)),
    ]
    sizes = []
    for rounds in (plain, full):
        plot.draw(finished(rounds), tmp_path / name)
        content = (tmp_path / name).read_bytes()
        assert content.startswith(start)
        sizes.append(len(content))
    assert sizes[1] > sizes[0]  # one panel more


def test_labels_are_short():
    assert [plot._label(value) for value in (None, 0.51, 12.34, 6871.2)] == ["n/a", "0.51", "12.3", "6871"]
