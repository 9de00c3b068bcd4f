"""The demo as `make demo` runs it, only shorter."""

import json
from pathlib import Path

import pytest

from tests.e2e.local_process import local_process


@pytest.mark.timeout(240)
def test_demo_keeps_every_promise(tmp_path: Path) -> None:
    """No request lost but by the killed worker, all recoveries in time, the document complete."""
    file = tmp_path / "demo.json"
    arguments = ("--seconds", "15", "--json", str(file))
    with local_process(tmp_path / "home", *arguments, command="demo") as made:
        code = made.wait(180)
        assert code == 0, made.output
        assert made.family() == set()
        document = json.loads(file.read_text())
    assert document["format"] == 1
    assert document["ok"] is True
    assert document["epoch_after"] > document["epoch_before"]
    events = {event["event"]: event for event in document["events"]}
    assert list(events) == ["drain", "worker_kill", "leader_kill", "redis_restart"]
    for name in ("drain", "leader_kill", "redis_restart"):
        assert (events[name]["failed"], events[name]["cut"]) == (0, 0), made.output
    assert all(event["requests"] > 0 for event in events.values())
    assert "every promise kept" in made.output
