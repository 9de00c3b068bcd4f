"""Programs that tests run and that a distribution's packages bring: Chromium, Prometheus, nghttp.

`python -m tests.packages` installs what is missing where it may (root, on Debian and its kin), and
says elsewhere what to install. Tests skip, with the reason, where one is missing all the same.
"""

import os
import shutil
import subprocess
import sys
from typing import Final

PACKAGES: Final = {
    "chromium": "chromium",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "nghttp": "nghttp2-client",
}
"""Program to the Debian package that has it."""

_SECONDS = 900.0


def missing() -> list[str]:
    """Packages of programs that are not on the PATH, each once."""
    return sorted({name for program, name in PACKAGES.items() if shutil.which(program) is None})


def main() -> int:
    """Install; 0 if all are here afterwards."""
    wanted = missing()
    if not wanted:
        return 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.stderr.write(f"tests of these are skipped; install them: {' '.join(wanted)}\n")
        return 1
    sys.stdout.write(f"installing {' '.join(wanted)} (a minute)\n")
    sys.stdout.flush()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", *wanted],
    ):
        try:
            done = subprocess.run(
                ["apt-get", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"apt-get {arguments[0]} did not end within {_SECONDS:g} s\n")
            return 1
        if done.returncode != 0:
            sys.stderr.write(f"apt-get {arguments[0]} failed: install {' '.join(wanted)}\n")
            return 1
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
