from firsttoken_sidecar import labels


def test_the_first_few_keep_their_names() -> None:
    made = labels.Bounded(most=2)
    assert [made.of(value) for value in ("", "a", "b", "c", "a", "d", "")] == [
        "", "a", "b", labels.OTHER, "a", labels.OTHER, "",
    ]  # fmt: skip


def test_however_many_tenants_there_are_labels_stay_few() -> None:
    made = labels.Bounded()
    seen = {made.of(f"tenant-{i}") for i in range(1000)}
    assert len(seen) == labels.MOST_TENANTS + 1
