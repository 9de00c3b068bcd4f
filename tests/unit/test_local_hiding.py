"""A secret of the command line, taken off the process list."""

import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from fleet.local.hiding import hide_argument
line = Path("/proc/self/cmdline")
before = line.read_bytes()
print(hide_argument(sys.argv[1]), sys.argv[1] in before.decode(), line.read_bytes().decode())
"""


def test_it_is_overwritten_wherever_it_stands() -> None:
    """Also inside another argument; everything else stays as it was."""
    secret = "redis://user:s3cret@h:1/0"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, secret, f"--url={secret}", "--other"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    gone, was_there, line = done.stdout.rstrip("\n").split(" ", 2)
    assert (gone, was_there) == ("True", "True")
    assert "s3cret" not in line
    stars = "*" * len(secret)
    assert line.split("\0")[-4:] == [stars, f"--url={stars}", "--other", ""]
