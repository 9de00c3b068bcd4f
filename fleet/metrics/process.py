"""What every process of a fleet shows of itself."""

import platform
from importlib.metadata import version

from prometheus_client.metrics_core import Metric

from fleet.installed import is_compiled
from fleet.metrics.declared import counter, gauge

BUILD_INFO = gauge(
    "epp_fleet_build_info",
    "Always 1; what runs here, and whether the hot path of its workers is compiled (true, false).",
    ("version", "python", "compiled"),
    series="1",
)

_LINUX = "on Linux"
VIRTUAL = gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", when=_LINUX)
RESIDENT = gauge("process_resident_memory_bytes", "Resident memory size in bytes.", when=_LINUX)
STARTED = gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
    when=_LINUX,
)
CPU = counter(
    "process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", when=_LINUX
)
OPEN_FDS = gauge("process_open_fds", "Number of open file descriptors.", when=_LINUX)
MAX_FDS = gauge("process_max_fds", "Maximum number of open file descriptors.", when=_LINUX)


def build_info() -> Metric:
    """Versions of the fleet and of Python, and whether the hot path is compiled."""
    compiled = "true" if is_compiled() else "false"
    return BUILD_INFO.rows([((version("epp-fleet"), platform.python_version(), compiled), 1)])
