"""Files that others read while we write them: always whole, by rename."""

import os
from pathlib import Path


def write_atomic(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write `text` to a temporary file beside `path` and rename it over.

    Raises:
        OSError: the folder is not writable or the disk is full; `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        temporary.chmod(mode)  # the umask does not decide
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
