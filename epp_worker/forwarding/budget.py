"""How many bytes all forwarded streams of a worker may hold together."""


class Bytes:
    """What is held, and the bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold `size` more; False if that were too much."""
        if self.held + size > self._most:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """Hold less."""
        self.held -= size
