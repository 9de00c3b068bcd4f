"""docs/logs.md and the code: every event is there, with its level, its process and its keys."""

from tests.log_events import HANDED_ON, documented, events

AGAIN = "write what is new into docs/logs.md: python -m tests.log_events"


def test_every_event_is_a_fixed_text() -> None:
    """Nothing that varies is put into one; those that hand events on are known."""
    _, loose = events()
    assert [place for place in loose if not place.startswith(HANDED_ON)] == []


def test_the_page_has_exactly_the_events_of_the_code() -> None:
    """What is gone is gone from the page too."""
    found, _ = events()
    assert sorted(documented()) == sorted(event.name for event in found), AGAIN


def test_each_row_says_what_the_code_says() -> None:
    """Levels, processes and keys, as far as the code tells them; and a word of what it means."""
    found, _ = events()
    page = documented()
    for event in found:
        levels, processes, keys, meaning = page[event.name]
        expected = (", ".join(event.levels), ", ".join(event.processes))
        assert (levels, processes) == expected, f"{event.name}: {AGAIN}"
        assert {f"`{key}`" for key in event.keys} <= set(keys.split()), f"{event.name}: {AGAIN}"
        assert len(meaning) > 5, f"{event.name}: say what it means"


def test_the_scan_sees_what_it_must() -> None:
    """Known lines of each kind: plain, limited, by level, one of two texts, handed on."""
    found = {event.name: event for event in events()[0]}
    dead = found["worker dead"]
    assert dead.levels == ("warning",)
    assert dead.processes == ("coordinator",)
    assert dead.keys == ("incarnation", "signal", "why", "worker")
    assert found["map published"].levels == ("debug", "info")
    assert found["drain mark set"].levels == found["drain mark lifted"].levels == ("info",)
    assert found["store unknown"].keys == ("error",)
    assert found["scrape failed"].processes == ("worker",)
    assert found["store error"].processes == ("coordinator", "worker")
