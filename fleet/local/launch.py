"""Start a program that dies with its parent: `python -I -S launch.py PARENT_PID PROGRAM ARGS...`.

The kernel kills the program (SIGKILL) when the process that started this one ends in any way, so a
fleet that is itself killed leaves nothing behind. Only the standard library, and little of it: this
runs before every process of a local fleet.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the death signal, check that the parent still lives, become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the line above could take effect
        sys.exit("the parent is gone")
    # A parent may have changed these for itself; exec would hand them on.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execv(program[0], program)  # noqa: S606
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
