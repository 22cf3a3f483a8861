from pathlib import Path

from cluster import sysctls


def _kernel(root: Path, values: dict[str, str]) -> Path:
    for name, value in values.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{value}\n")
    return root


def test_only_what_is_too_low_is_raised_and_all_is_put_back(tmp_path: Path) -> None:
    before = {"net/ipv4/ip_forward": "0", "fs/inotify/max_user_instances": "4096", "kernel/panic": "1"}
    root = _kernel(tmp_path, before)
    assert sysctls.read(root) == before
    sysctls.raise_to_needed(root)
    assert sysctls.read(root) == {**before, "net/ipv4/ip_forward": "1"}
    (root / "kernel/panic").write_text("10")  # as the kubelet does
    sysctls.restore(before, root)
    assert sysctls.read(root) == before


def test_a_setting_this_kernel_lacks_is_left_alone(tmp_path: Path) -> None:
    sysctls.restore({"net/none": "1"}, tmp_path)
    assert list(tmp_path.iterdir()) == []
