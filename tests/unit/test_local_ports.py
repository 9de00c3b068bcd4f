"""Ports of fleets that start at the same time."""

import random
import socket
from pathlib import Path

from fleet.local.ports import BLOCK, Ports, first_ephemeral, is_free


def test_two_fleets_with_the_same_luck_share_no_port() -> None:
    """Both draw the same blocks; the second finds them guarded and goes on."""
    with Ports(random.Random(7)) as one, Ports(random.Random(7)) as two:
        first = {one.take() for _ in range(BLOCK + 5)}
        second = {two.take() for _ in range(BLOCK + 5)}
    assert len(first) == len(second) == BLOCK + 5
    assert not first & second


def test_ports_are_below_the_ephemeral_range() -> None:
    """Else an outgoing connection could take one before its server does."""
    with Ports(random.Random(1)) as ports:
        assert all(1024 < ports.take() < first_ephemeral() for _ in range(10))


def test_a_port_in_use_is_passed_over() -> None:
    """Somebody who is no fleet listens inside our block, on one of the addresses asked for."""
    with Ports(random.Random(3)) as ports:
        probe = ports.take()
        with socket.socket() as other:
            other.bind(("127.0.0.2", probe + 1))
            other.listen(1)
            assert not is_free("127.0.0.2", probe + 1)
            assert ports.take(also_on=("127.0.0.2",)) == probe + 2


def test_blocks_come_back() -> None:
    """A closed fleet's ports can be drawn again."""
    with Ports(random.Random(5)) as ports:
        first = ports.take()
    with Ports(random.Random(5)) as ports:
        assert ports.take() == first


def test_an_odd_ephemeral_range_falls_back(tmp_path: Path) -> None:
    """No file, no number, or a range that begins too low: the kernel's default is assumed."""
    file = tmp_path / "range"
    assert first_ephemeral(file) == 32_768
    for text, expected in (("x", 32_768), ("1024 65535", 32_768), ("40000 60999", 40_000)):
        file.write_text(text)
        assert first_ephemeral(file) == expected
