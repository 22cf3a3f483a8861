"""Where a prefix belongs, how much of it is cached where, and that memory has an end."""

from firsttoken_sidecar import prefix_memory


def keys(*names: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in names)


def label_key(
    memory: prefix_memory.PrefixMemory, prompt: tuple[bytes, ...], largest_share: float, now: float
) -> bytes | None:
    return memory.label(prompt, largest_share, now).key


def arrive(memory: prefix_memory.PrefixMemory, prompt: tuple[bytes, ...], times: int, now: float) -> None:
    for _ in range(times):
        memory.arrived(prompt, now)


def test_a_prompt_without_pieces_has_no_home() -> None:
    assert label_key(prefix_memory.PrefixMemory(), (), 0.3, 0.0) is None


def test_a_shared_prompt_has_one_label_whatever_follows() -> None:
    memory = prefix_memory.PrefixMemory()
    for user in range(40):
        memory.arrived(keys("system A", "more A", f"user {user}"), 0.0)
        memory.arrived(keys("other", f"{user}"), 0.0)
        memory.arrived(keys(f"alone {user}"), 0.0)
        memory.arrived(keys(f"alone too {user}"), 0.0)
    labels = {label_key(memory, keys("system A", "more A", f"new {i}"), 0.3, 0.0) for i in range(5)}
    assert labels == {b"system A"}


def test_what_is_too_common_for_one_replica_is_labelled_by_what_follows() -> None:
    memory = prefix_memory.PrefixMemory()
    for user in range(40):
        memory.arrived(keys("common", "common too", f"user {user}", "turn"), 0.0)
    assert (
        label_key(memory, keys("common", "common too", "user 7", "turn", "next turn"), 0.3, 0.0) == b"user 7"
    )
    assert label_key(memory, keys("common", "common too", "somebody new"), 0.3, 0.0) == b"somebody new"
    assert label_key(memory, keys("common", "common too"), 0.3, 0.0) is None


def test_what_is_too_common_is_taken_to_be_cached_everywhere() -> None:
    memory = prefix_memory.PrefixMemory()
    for user in range(40):
        memory.arrived(keys("common", "common too", f"user {user}"), 0.0)
    assert memory.label(keys("common", "common too", "user 7"), 0.3, 0.0).common_pieces == 2
    assert memory.label(keys("common", "other"), 0.3, 0.0).common_pieces == 1
    assert memory.label(keys("other"), 0.3, 0.0).common_pieces == 0


def test_what_recurs_is_expected_to_have_come_to_others_too() -> None:
    recurring, unique = prefix_memory.PrefixMemory(), prefix_memory.PrefixMemory()
    for i in range(100):
        recurring.arrived(keys(f"system {i % 5}", "more", f"user {i % 5}", f"{i}"), 0.0)
        unique.arrived(keys(f"alone {i}", f"{i} b", f"{i} c", f"{i} d"), 0.0)
    new = keys("never seen", "a", "b", "c")
    assert recurring.label(new, 0.3, 0.0).expected_pieces >= 2
    assert unique.label(new, 0.3, 0.0).expected_pieces == 0


def test_what_peers_send_on_is_known_but_says_nothing_of_how_common_it_is() -> None:
    memory = prefix_memory.PrefixMemory()
    for i in range(40):
        memory.arrived(keys(f"alone {i}"), 0.0)
        memory.sent(keys("at home here", f"{i}"), "own", 0.0)
    assert memory.label(keys("at home here", "x"), 0.3, 0.0).key == b"at home here"
    assert memory.cached_pieces(keys("at home here", "x"), 0.0) == {"own": 1}


def test_the_first_requests_are_not_taken_for_common() -> None:
    memory = prefix_memory.PrefixMemory()
    arrive(memory, keys("system", "user"), int(prefix_memory.LEAST_REQUESTS) - 1, 0.0)
    assert label_key(memory, keys("system", "user"), 0.3, 0.0) == b"system"
    arrive(memory, keys("system", "user"), 5, 0.0)
    assert label_key(memory, keys("system", "user"), 0.3, 0.0) is None


def test_what_was_common_is_forgotten() -> None:
    memory = prefix_memory.PrefixMemory()
    arrive(memory, keys("once", "x"), 100, 0.0)
    later = 10 * prefix_memory.HALF_LIFE_S
    arrive(memory, keys("now"), 100, later)
    assert label_key(memory, keys("once", "x"), 0.3, later) == b"once"


def test_cached_is_as_deep_as_what_was_sent_there() -> None:
    memory = prefix_memory.PrefixMemory()
    first, second = keys("a", "b", "c"), keys("a", "b", "d", "e")
    memory.arrived(first, 0.0)
    memory.sent(first, "one", 0.0)
    memory.arrived(second, 1.0)
    memory.sent(second, "two", 1.0)
    assert memory.cached_pieces(keys("a", "b", "d", "e", "f"), 2.0) == {"one": 2, "two": 4}
    assert memory.cached_pieces(keys("z", "a"), 2.0) == {}


def test_an_old_prefix_is_no_longer_counted_on() -> None:
    memory = prefix_memory.PrefixMemory()
    memory.arrived(keys("a"), 0.0)
    memory.sent(keys("a"), "one", 0.0)
    assert memory.cached_pieces(keys("a"), prefix_memory.FORGOTTEN_AFTER_S) == {"one": 1}
    assert memory.cached_pieces(keys("a"), prefix_memory.FORGOTTEN_AFTER_S + 1) == {}


def test_memory_is_bounded_and_the_least_recent_goes_first() -> None:
    memory = prefix_memory.PrefixMemory(most_keys=100)
    arrive(memory, keys("kept"), 1, 0.0)
    for i in range(500):
        memory.arrived(keys(f"{i}"), float(i))
        memory.arrived(keys("kept"), float(i))
    memory.sent(keys("kept"), "one", 500.0)
    assert len(memory) == 100
    assert memory.cached_pieces(keys("kept"), 500.0) == {"one": 1}


def test_of_a_long_prompt_some_depths_are_kept() -> None:
    memory = prefix_memory.PrefixMemory()
    long = keys(*(f"{i}" for i in range(256)))
    memory.arrived(long, 0.0)
    memory.sent(long, "one", 0.0)
    assert len(memory) <= 40
    assert memory.cached_pieces(long, 0.0) == {"one": 256}
    # Seventeen pieces are known as sixteen: the depth between is not kept.
    assert memory.cached_pieces(long[:17], 0.0) == {"one": 16}


def test_replicas_of_one_prefix_are_bounded() -> None:
    memory = prefix_memory.PrefixMemory()
    memory.arrived(keys("a"), 0.0)
    for i in range(20):
        memory.sent(keys("a"), f"replica {i}", float(i))
    pieces = memory.cached_pieces(keys("a"), 20.0)
    assert set(pieces) == {f"replica {i}" for i in range(20 - prefix_memory.MOST_REPLICAS, 20)}
