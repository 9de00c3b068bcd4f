"""The two ways in which a leader may find that it must not act."""

from fleet.errors import FleetError


class LeadershipLost(FleetError):
    """Somebody else leads: stop acting at once."""


class LeaseInDoubt(FleetError):
    """The lease does not cover this moment; whether the term is over is not known yet."""
