"""An endpoint as plugins see it."""

from epp_worker.scheduling.pool import EndpointState

__all__ = ["EndpointState"]
