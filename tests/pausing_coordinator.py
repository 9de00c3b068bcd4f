"""A coordinator that stops itself (SIGSTOP) at a chosen point, once, when a file says so.

`python -m tests.pausing_coordinator POINT FILE <arguments of the coordinator>`: when FILE exists at
POINT it is removed and the process stops itself. Points:

publication  before the guarded write to the store
files        after one route file was written, before the next
lock         inside the lock of a route file, after the last check and before the rename; what that
             rename put there stands in FILE.landed afterwards
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from coordinator.main import main
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.eds_file import EdsFile
from fleet.store.redis import RedisStore


def _stop_if(armed: Path) -> bool:
    """Whether it was stopped, and is awake again."""
    try:
        armed.unlink()
    except FileNotFoundError:
        return False
    os.kill(os.getpid(), signal.SIGSTOP)
    # The signal stops the process, but this thread may run on for some microseconds until then.
    time.sleep(0.2)
    return True


def _install(point: str, armed: Path) -> None:
    if point == "publication":
        publish = RedisStore.publish

        async def stopping_publish(self: RedisStore, *args: Any) -> None:
            _stop_if(armed)
            await publish(self, *args)

        setattr(RedisStore, "publish", stopping_publish)  # noqa: B010
    elif point == "files":
        write = EdsRoutes._write_one

        def write_then_stop(self: EdsRoutes, *args: Any) -> Any:
            verdict = write(self, *args)
            _stop_if(armed)
            return verdict

        setattr(EdsRoutes, "_write_one", write_then_stop)  # noqa: B010
    elif point == "lock":
        rename = EdsFile._rename

        def stopping_rename(self: EdsFile, temporary: str) -> None:
            stopped = _stop_if(armed)
            data = Path(temporary).read_bytes()
            rename(self, temporary)
            if stopped:
                told = armed.with_suffix(".telling")
                told.write_bytes(data)
                told.rename(armed.with_suffix(".landed"))

        setattr(EdsFile, "_rename", stopping_rename)  # noqa: B010
    else:
        raise SystemExit(f"unknown point {point!r}")


if __name__ == "__main__":
    _install(sys.argv[1], Path(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
