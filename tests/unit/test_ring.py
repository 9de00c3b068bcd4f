"""The ring: the same order of workers everywhere, and little movement."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from fleet.errors import FormatError
from fleet.model import GroupKey, RingSpec
from fleet.ring import Ring, group_hash

GROUPS = [GroupKey(f"ns-{i % 7}", f"epp-{i}", 9002) for i in range(2000)]


def _spec(*names: str, **weights: int) -> RingSpec:
    return RingSpec("xxh3", 160, {**dict.fromkeys(names, 1), **weights})


_IN_CHILD = """
import json, sys
from fleet.model import GroupKey, RingSpec
from fleet.ring import Ring
names = json.loads(sys.argv[1])
ring = Ring.build(RingSpec("xxh3", 16, {name: 1 for name in names}))
services = ("epp", "\\u00e9pp-\\u6a21")
groups = [GroupKey(f"ns-{i}", service, 9002) for i in range(40) for service in services]
print(json.dumps([ring.candidates(group, 3) for group in groups]))
"""


def test_every_process_has_the_same_ring() -> None:
    """Hash seeds and the order of members do not matter, names outside ASCII neither
    (django/channels_redis#273)."""
    names = ["worker-0", "worker-1", "w\u00f6rker", "\u5de5\u4eba", "worker-4"]
    children = []
    for seed in range(5):
        turned = names[seed:] + names[:seed]
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", _IN_CHILD, json.dumps(turned)],
                env={**os.environ, "PYTHONHASHSEED": str(seed)},
                stdout=subprocess.PIPE,
            )
        )
    answers = {child.communicate(timeout=60)[0] for child in children}
    assert [child.returncode for child in children] == [0] * 5
    assert len(answers) == 1
    assert len({tuple(order) for order in json.loads(answers.pop())}) > 10


def test_the_hash_of_a_group_never_changes() -> None:
    """Rings of running fleets must survive an upgrade: xxh3_64 of `namespace/service:port`."""
    assert group_hash(GroupKey("default", "epp", 9002)) == 13449664665351676059


def test_candidates_are_distinct_workers_and_the_home_is_the_first() -> None:
    """Every worker stands once in a group's order; asking for more gives what there is."""
    ring = Ring.build(_spec("a", "b", "c", "d"))
    for group in GROUPS[:200]:
        order = ring.candidates(group, 10)
        assert sorted(order) == ["a", "b", "c", "d"]
        assert ring.candidates(group, 2) == order[:2]
        assert ring.home(group) == order[0]
    assert ring.candidates(GROUPS[0], 0) == ()


def test_an_empty_ring_has_no_candidates() -> None:
    """No workers: nobody's home, no error."""
    ring = Ring.build(_spec())
    assert ring.candidates(GROUPS[0], 3) == ()
    assert ring.home(GROUPS[0]) is None


def test_a_leaver_moves_only_its_own_groups_each_to_the_next_in_order() -> None:
    """Between survivors nothing moves (the 'ketama' form breaks this with weights)."""
    before = Ring.build(_spec("a", "b", "c", d=3))
    after = Ring.build(_spec("a", "b", d=3))
    for group in GROUPS:
        order = [name for name in before.candidates(group, 4) if name != "c"]
        assert list(after.candidates(group, 3)) == order


def test_weights_are_shares() -> None:
    """A worker of weight 2 is home to about twice as many groups as one of weight 1."""
    ring = Ring.build(_spec("a", "b", c=2))
    homes = Counter(ring.home(group) for group in GROUPS)
    assert 800 < homes["c"] < 1200
    assert homes["a"] + homes["b"] == 2000 - homes["c"]


def test_an_unknown_hash_function_is_refused() -> None:
    """A ring that we cannot rebuild must not be guessed."""
    with pytest.raises(FormatError, match="md5"):
        Ring.build(RingSpec("md5", 160, {"a": 1}))
