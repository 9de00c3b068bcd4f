"""The llm-d router's prefix rule, written down once more in the plainest way: what we compare with.

Nothing of ours is used here: block by block, with sets and ordered dicts.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import xxhash

CAPACITY = 31_250


def block_hashes(
    tokens: Sequence[int], model: str, salt: str, block_tokens: int, most: int
) -> list[int]:
    """The hash chain of a prompt of tokens."""
    before = xxhash.xxh64((model + salt).encode()).intdigest()
    hashes: list[int] = []
    for start in range(0, len(tokens), block_tokens):
        if len(hashes) == most:
            break
        content = b"".join(
            token.to_bytes(4, "little") for token in tokens[start : start + block_tokens]
        )
        block = xxhash.xxh64(content).intdigest()
        both = block.to_bytes(8, "little") + before.to_bytes(8, "little")
        before = xxhash.xxh64(both).intdigest()
        hashes.append(before)
    return hashes


def text_hashes(text: bytes, model: str, block_tokens: int, most: int) -> list[int]:
    """Likewise of a text whose length is a multiple of four."""
    before = xxhash.xxh64(model.encode()).intdigest()
    hashes: list[int] = []
    size = 4 * block_tokens
    for start in range(0, min(len(text), most * size), size):
        block = xxhash.xxh64(text[start : start + size]).intdigest()
        both = block.to_bytes(8, "little") + before.to_bytes(8, "little")
        before = xxhash.xxh64(both).intdigest()
        hashes.append(before)
    return hashes


def text_tokens(text: bytes) -> list[int]:
    """Text as tokens of four bytes, padded with zeros."""
    padded = text + b"\0" * (-len(text) % 4)
    return [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]


class RuleIndex:
    """Which servers have which blocks: an LRU for each server."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.servers: dict[int, set[str]] = {}
        self.recent: dict[str, OrderedDict[int, None]] = {}
        self.capacity = capacity

    def match(self, hashes: Iterable[int]) -> dict[str, int]:
        """Blocks that each server has, up to the first that none has."""
        found: dict[str, int] = {}
        for block in hashes:
            servers = self.servers.get(block)
            if not servers:
                break
            for server in servers:
                found[server] = found.get(server, 0) + 1
        return found

    def add(self, server: str, hashes: Iterable[int]) -> None:
        """A request went there."""
        recent = self.recent.setdefault(server, OrderedDict())
        for block in hashes:
            recent[block] = None
            recent.move_to_end(block)
            self.servers.setdefault(block, set()).add(server)
            if len(recent) > self.capacity:
                old, _ = recent.popitem(last=False)
                self.servers[old].discard(server)
                if not self.servers[old]:
                    del self.servers[old]

    def remove(self, server: str) -> None:
        """The server is gone."""
        for block in self.recent.pop(server, ()):
            self.servers[block].discard(server)
            if not self.servers[block]:
                del self.servers[block]
