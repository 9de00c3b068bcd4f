"""Who a certificate is for: a role of one fleet, whatever its address.

Pods get new addresses all the time, so a certificate names what its holder is. A peer is checked by
that name instead of by the address that was dialled.
"""

from enum import StrEnum

DOMAIN = "epp-fleet.internal"


class Role(StrEnum):
    """What a process is in its fleet."""

    COORDINATOR = "coordinator"
    WORKER = "worker"


def peer_name(role: Role, fleet: str) -> str:
    """The DNS name in the certificates of this role."""
    return f"{role.value}.{fleet}.{DOMAIN}"
