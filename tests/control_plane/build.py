"""Builds the control plane's programs from the Go module proxy.

    python -m tests.control_plane.build

One binary holds etcd, kube-apiserver and kube-controller-manager (`main.go`; the first argument
chooses). The first build takes 8 to 14 minutes on two cores, 3 GiB of memory for the linker and
4 GiB of Go's caches. The binary (136 MB) is kept in the user's cache by the hash of its sources,
and is built only where it is absent.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SOURCES = Path(__file__).parent
PROGRESS_SECONDS = 30.0
STALLED_SECONDS = 900.0
"""Without a line of Go's: only a module proxy that never answers is silent for so long."""

Say = Callable[[str], None]


class CannotBuild(Exception):
    """There is no Go, or it failed or came to a halt; the message says what to do."""


def cached_binary() -> Path:
    """Where the binary of these sources is or would be."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCES / name).read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "epp-fleet" / "control-plane" / digest.hexdigest()[:16] / "kubetest"


def kubernetes_version() -> str:
    """The release in go.mod, as 1.37.2."""
    found = re.search(
        r"^\tk8s\.io/kubernetes v(\S+)$", (SOURCES / "go.mod").read_text(), re.MULTILINE
    )
    assert found, "go.mod names no k8s.io/kubernetes"
    return found.group(1)


def build(say: Say) -> Path:
    """The binary; built now if the cache has none. Of two builders one waits for the other.

    Args:
        say: told what is going on, a line at a time.

    Raises:
        CannotBuild: see there.
    """
    binary = cached_binary()
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(
            "Go is not installed, so the control plane for tests cannot be built: install it "
            "(https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with etcd and "
            "kube-apiserver"
        )
    binary.parent.mkdir(parents=True, exist_ok=True)
    with _alone(binary.with_name("lock"), say):
        if not binary.exists():  # another builder may have made it while we waited
            _compile(go, binary, say)
    return binary


@contextlib.contextmanager
def _alone(lock: Path, say: Say) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(go: str, binary: Path, say: Say) -> None:
    version = kubernetes_version()
    say(f"building a Kubernetes {version} control plane for tests; 8 to 14 minutes the first time")
    partial, log = binary.with_name("kubetest.partial"), binary.with_name("build.log")
    command = [go, "build", "-v", "-p=2", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", _ldflags(version), "-o", str(partial), "."]
    # -mod=readonly: go.mod and go.sum are what they are.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=SOURCES, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _watch_over(process, log, started, say)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        tail = log.read_text(errors="replace")[-2000:]
        raise CannotBuild(f"go build failed ({log}):\n{tail}")
    partial.replace(binary)
    say(f"built {binary} in {time.monotonic() - started:.0f} s")


def _watch_over(process: subprocess.Popen[bytes], log: Path, started: float, say: Say) -> None:
    seen, moved = 0, started
    while True:
        try:
            process.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            lines, now = log.read_bytes().splitlines(), time.monotonic()
            compiled = sum(not line.startswith(b"go: ") for line in lines)
            say(f"  {(now - started) / 60:.1f} min: {compiled} packages of about 2,500")
            if len(lines) > seen:
                seen, moved = len(lines), now
            elif now - moved >= STALLED_SECONDS:
                raise CannotBuild(
                    f"go build said nothing for {STALLED_SECONDS:g} s ({log}): is the module "
                    "proxy reachable?"
                ) from None
        else:
            return


def _ldflags(version: str) -> str:
    major, minor, _ = version.split(".")
    stamps = {
        "gitVersion": f"v{version}",
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    package = "k8s.io/component-base/version"
    stamped = " ".join(f"-X {package}.{name}={value}" for name, value in stamps.items())
    return f"-s -w {stamped}"


def main() -> int:
    """Build, telling the terminal."""
    try:
        binary = build(_say)
    except CannotBuild as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(f"control plane for tests: {binary}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
