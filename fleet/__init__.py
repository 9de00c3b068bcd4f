"""The kernel of EPP Fleet: what a pool, a worker, a ring and a shard map are.

Imports neither `coordinator` nor `epp_worker`; both sit on it side by side.
"""

__version__ = "0.1.0"
