"""Every error that crosses a room's border, in one tree.

    FleetError
    ├── SettingsError          bad settings or usage; carries one message per field (exit code 2)
    ├── ManifestError          one object of a source is malformed; names it and the field
    ├── AuthorityError         a stream's `:authority` names no Service
    ├── FormatError            a stored value or a peer's message is of a format we cannot read
    ├── StoreError
    │   ├── StoreUnavailable   the answer is unknown: the write may or may not have landed
    │   └── StoreRefused       the store looked and said no: holder or epoch is not ours
    ├── RouteError             a route could not be read or written
    ├── KubeError
    │   ├── KubeUnavailable    no answer, or 5xx: the answer is unknown and a write may have landed
    │   └── KubeRefused        the API server said no: status, reason and message are its own
    │       ├── KubeForbidden  401 or 403: names verb and resource, since RBAC is what to mend
    │       ├── KubeNotFound   404
    │       ├── KubeConflict   409: another resourceVersion, or it exists already
    │       ├── KubeGone       410: the resourceVersion of a list or watch has expired
    │       └── KubeThrottled  429: try again after `retry_after_seconds`
    └── RefusedByLeader        this process may not be a member (its id is taken); exit code 2

A library's exception never leaves the adapter that met it.
"""

from collections.abc import Sequence


class FleetError(Exception):
    """The root: catch it where any fault of ours is handled alike."""


class SettingsError(FleetError):
    """Settings or command line are wrong.

    Attributes:
        problems: one line each, starting with the field's path (`redis.url: ...`).
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ManifestError(FleetError):
    """An object of a source cannot be used; the message names object, field and remedy."""


class AuthorityError(FleetError):
    """A `:authority` that names no Service; the message quotes what was received."""


class FormatError(FleetError):
    """A value or message that this version cannot read (unknown format or damaged)."""


class StoreError(FleetError):
    """Something about the store; always one of the two kinds below."""


class StoreUnavailable(StoreError):
    """No answer, or an answer that proves nothing. A write may have landed."""


class StoreRefused(StoreError):
    """The store compared holder and epoch inside the write and refused it.

    Attributes:
        holder: who holds the lease now, or None.
        epoch: the epoch that is stored now.
    """

    def __init__(self, message: str, *, holder: str | None, epoch: int) -> None:
        super().__init__(message)
        self.holder = holder
        self.epoch = epoch


class RouteError(FleetError):
    """A route (EDS file, EndpointSlice) could not be read or written; names it."""


class RefusedByLeader(FleetError):
    """The leader refuses this process as a member, for good."""


class KubeError(FleetError):
    """Something about the API server; always one of the kinds below."""


class KubeUnavailable(KubeError):
    """No answer, or a 5xx: nothing is known, and a write may have landed."""


class KubeRefused(KubeError):
    """The API server answered with a 4xx.

    Attributes:
        status: the HTTP status.
        reason: `Status.reason` (`Invalid`, `AlreadyExists`, ...), or "".
    """

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class KubeForbidden(KubeRefused):
    """401 or 403; the message names verb and resource."""


class KubeNotFound(KubeRefused):
    """404: no such object, or no such kind."""


class KubeConflict(KubeRefused):
    """409: read again and decide again."""


class KubeGone(KubeRefused):
    """410: list again."""


class KubeThrottled(KubeRefused):
    """429.

    Attributes:
        retry_after_seconds: what the server asks for; 1.0 if it does not say.
    """

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message, status=429, reason="TooManyRequests")
        self.retry_after_seconds = retry_after_seconds
