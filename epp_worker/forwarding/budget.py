"""How many bytes all forwarded streams of a worker may hold together."""

from typing import Protocol


class Spare(Protocol):
    """Somebody who holds bytes that can be done without."""

    def forget_kept(self) -> None:
        """Give them back."""
        ...


class Bytes:
    """What is held, and the bound. What can be done without goes first, the oldest of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spare: dict[Spare, None] = {}
        self.held = 0

    def may_spare(self, holder: Spare) -> None:
        """Some of what this one holds can be done without."""
        self._spare[holder] = None

    def spares_nothing(self, holder: Spare) -> None:
        """It needs all that it holds; safe to repeat."""
        self._spare.pop(holder, None)

    def take(self, size: int) -> bool:
        """Hold `size` more; False if that were too much."""
        while self.held + size > self._most and self._spare:
            next(iter(self._spare)).forget_kept()
        if self.held + size > self._most:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """Hold less."""
        self.held -= size
