"""When a term knows enough to make its first map.

Nothing is published out of knowing nothing, or from half a look. A term has settled when every
worker that is known was reached or is dead, and else after one member TTL: who did not answer by
then counts as silent like anybody else.
"""

from dataclasses import dataclass

from fleet.settings.model import MembershipSettings

FIRST_BEATS = 1.2
"""A fleet without a past settles for at least this many heartbeats, so that all have beaten."""


@dataclass(frozen=True, slots=True)
class Informed:
    """What the term knows.

    Attributes:
        store_reads: how often the store told the workers' beats.
        past: whether a map is known that names workers.
        reached: whether any worker has said hello.
        all_reached: whether every known worker has, and there are some.
        pods_reached: whether every worker that is known by its pod alone has, too.
    """

    store_reads: int
    past: bool
    reached: bool
    all_reached: bool
    pods_reached: bool


def settled(
    known: Informed, *, elapsed: float, in_store: bool, settings: MembershipSettings
) -> bool:
    """Whether the first map may be made `elapsed` seconds after the term began.

    Args:
        in_store: whether the lease is in the store. If so, the store's word is waited for; if not,
            it counts like a map of old or a worker's own word.
    """
    told = known.store_reads > 0
    if not told and (in_store or not (known.past or known.reached)):
        return False
    least = 0.0 if known.past else FIRST_BEATS * settings.heartbeat_seconds
    complete = (told or known.past) and known.all_reached and (told or known.pods_reached)
    return (complete and elapsed >= least) or elapsed >= settings.ttl_seconds
