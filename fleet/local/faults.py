"""What talking to a fleet's coordinators can end in."""

from fleet.errors import FleetError


class Unreachable(FleetError):
    """No coordinator gave an answer; the message tells what each one said."""


class Refused(FleetError):
    """A coordinator answered no.

    Attributes:
        status: the HTTP status.
        code: the error's code, "" if it has none.
    """

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
