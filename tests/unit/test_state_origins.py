"""Requests in flight by the word of others: who may say what, and what ends it."""

from epp_worker.scheduling.state_origins import Origins


def test_counts_of_all_origins_add_up() -> None:
    """Two workers have requests open on one endpoint."""
    origins = Origins()
    assert [*origins.hear("b", "life-b", {"e1": 3, "e2": 0})] == ["e1", "e2"]
    assert [*origins.hear("b", "life-a", {"e1": 2})] == ["e1"]
    assert (origins.total("e1"), origins.total("e2"), origins.total("e3")) == (5, 0, 0)
    assert dict(origins.of("e1")) == {"life-b": 3, "life-a": 2}


def test_what_is_known_already_is_no_news() -> None:
    """Or two workers that feed each other would never stop."""
    origins = Origins()
    origins.hear("b", "life-b", {"e1": 3})
    assert not origins.hear("b", "life-b", {"e1": 3})


def test_a_new_speaker_for_an_origin_replaces_what_was_said_of_it() -> None:
    """First by relay, then by the origin itself: nothing is counted twice, nothing is left over."""
    origins = Origins()
    origins.hear("b", "life-a", {"e1": 4, "e2": 1})
    assert [*origins.hear("a", "life-a", {"e1": 3})] == ["e1", "e2"]
    assert (origins.total("e1"), origins.total("e2")) == (3, 0)


def test_a_speaker_is_forgotten_with_all_that_it_said_and_nothing_else() -> None:
    """Its stream is over. Zeros stay, to be told on."""
    origins = Origins()
    origins.hear("b", "life-b", {"e1": 3})
    origins.hear("b", "life-a", {"e2": 2})
    origins.hear("c", "life-c", {"e1": 1})
    assert [*origins.forget("b")] == ["e1", "e2"]
    assert (origins.total("e1"), origins.total("e2")) == (1, 0)
    assert ("life-b", 0) in origins.of("e1")


def test_the_dead_are_dropped() -> None:
    """Only origins that live keep their counts."""
    origins = Origins()
    origins.hear("b", "life-b", {"e1": 3})
    origins.hear("b", "life-a", {"e1": 2})
    assert [*origins.keep({"life-a", "life-x"})] == ["e1"]
    assert origins.total("e1") == 2
    assert len(origins) == 1


def test_a_peer_cannot_grow_it_without_bound() -> None:
    """Addresses beyond any pool's size are not remembered; no count is below 0."""
    origins = Origins()
    origins.hear("b", "life-b", {f"e{n}": 1 for n in range(5000)})
    assert sum(origins.total(f"e{n}") for n in range(5000)) == 4096
    origins.hear("b", "life-b", {"e1": -7})
    assert origins.total("e1") == 0
