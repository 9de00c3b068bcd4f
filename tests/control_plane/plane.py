"""One control plane on loopback: started in 3 to 6 s, stopped in 1 s, everything in one folder.

No scheduler and no kubelet: tests create the Node and patch Pod status. EndpointSlices refuse
loopback addresses, so addresses of Pods are of 192.0.2.0/24 (RFC 5737). The kernel kills the
programs when the process that started them dies; start a plane from the main thread.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleet.local import launch
from fleet.local.ports import Ports
from tests.control_plane.pki import Pki
from tests.control_plane.programs import Programs

START_SECONDS = 60.0
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.05

CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "horizontal-pod-autoscaler-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
)
"""No node lifecycle and no Pod clean-up: they would take away Pods that no kubelet reports."""

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def kubeconfig_text(
    cluster: dict[str, str], user: dict[str, str], *, namespace: str = "default"
) -> str:
    """A kubeconfig (JSON is YAML) with one context of these `cluster` and `user` sections."""
    context = {"cluster": "c", "user": "u", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    return json.dumps(config)


class ControlPlane:
    """etcd, kube-apiserver and, once asked for, the controller manager.

    Attributes:
        folder: logs, data, certificates and kubeconfigs.
        url: https://127.0.0.1:port, the same over restarts.
    """

    def __init__(
        self,
        programs: Programs,
        *,
        apiserver_flags: Sequence[str] = (),
        controllers: Sequence[str] = CONTROLLERS,
        audit: bool = False,
    ) -> None:
        """Starts nothing.

        Args:
            apiserver_flags: further flags of kube-apiserver.
            audit: keep one line for each request, see `audit_events`.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
        self._programs = programs
        self._apiserver_flags = tuple(apiserver_flags)
        self._controllers = tuple(controllers)
        self._audit = audit
        self._ports = Ports(random.Random())
        self._etcd = f"http://127.0.0.1:{self._ports.take()}"
        self._peer = f"http://127.0.0.1:{self._ports.take()}"
        self._port, self._controllers_port = self._ports.take(), self._ports.take()
        self.url = f"https://127.0.0.1:{self._port}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pki: Pki | None = None

    @property
    def pki(self) -> Pki:
        """Made on first use."""
        if self._pki is None:
            self._pki = Pki(self.folder / "pki")
        return self._pki

    def start(self) -> Self:
        """etcd and the API server, until it is ready. Install CRDs before `start_controllers`.

        Raises:
            RuntimeError: not ready in time; the message ends with the log.
        """
        self._launch("etcd", [*self._programs.etcd, *self._etcd_flags()])
        self.start_apiserver()
        return self

    def start_apiserver(self) -> None:
        """Start it (again) at the same address, until it is ready."""
        self._launch("apiserver", [*self._programs.apiserver, *self._flags()])
        self._await("apiserver", f"{self.url}/readyz")

    def start_controllers(self) -> bool:
        """Until it is healthy; False if there is no such program."""
        if self._programs.controllers is None:
            return False
        self._launch("controllers", [*self._programs.controllers, *self._controller_flags()])
        self._await("controllers", f"https://127.0.0.1:{self._controllers_port}/healthz")
        return True

    def kubeconfig(self, user: str = "admin", *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate.

        Args:
            user: `admin` may do everything; any other is made on first use.
            groups: of a new user.
        """
        path = self.folder / f"{user}.kubeconfig"
        if not path.exists():
            if not Path(self.pki.certificate(user)).exists():
                organisations = "".join(f"/O={group}" for group in groups)
                self.pki.client(user, f"{organisations}/CN={user}")
            cluster = {"server": self.url, "certificate-authority": self.pki.certificate("ca")}
            pair = {
                "client-certificate": self.pki.certificate(user),
                "client-key": self.pki.key(user),
            }
            path.write_text(kubeconfig_text(cluster, pair))
        return path

    def audit_events(self, *, user: str = "") -> list[dict[str, Any]]:
        """What was asked so far: verb, user, objectRef, responseStatus and more of each request.

        Args:
            user: only what users asked whose name has this in it.
        """
        if not self._audit:
            raise RuntimeError("this control plane keeps no audit log: ControlPlane(audit=True)")
        with (self.folder / "audit.log").open("rb") as lines:
            # Unpacked only if it may be of the user: tests wait for what the log says.
            of_user = (each for each in lines if user.encode() in each and each.endswith(b"\n"))
            events = [json.loads(line) for line in of_user]
        return [each for each in events if user in each["user"].get("username", "")]

    def forget_history(self) -> None:
        """Compact etcd up to now: earlier versions are 410 for kinds without a cache in the API
        server (events); its caches of other kinds are lost when it starts anew."""
        revision = self._ask_etcd("range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("compaction", {"revision": revision, "physical": True})

    def _ask_etcd(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{self._etcd}/v3/kv/{call}"
        with urllib.request.urlopen(url, data=json.dumps(body).encode(), timeout=10) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer

    def pid(self, program: str) -> int:
        """Of `etcd`, `apiserver` or `controllers`."""
        return self._running[program].pid

    def pause(self, program: str = "apiserver") -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        os.kill(self.pid(program), signal.SIGSTOP)

    def resume(self, program: str = "apiserver") -> None:
        """SIGCONT."""
        os.kill(self.pid(program), signal.SIGCONT)

    def kill(self, program: str) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(program, signal.SIGKILL)

    def stop(self) -> None:
        """End everything and remove the folder; idempotent."""
        for program in ("controllers", "apiserver", "etcd"):
            if program in self._running:
                self._end(program, signal.SIGKILL)  # nothing in here outlives us anyway
        self._ports.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--name=test",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={self._peer}",
            f"--initial-advertise-peer-urls={self._peer}",
            f"--initial-cluster=test={self._peer}",
        ]

    def _flags(self) -> list[str]:
        pki = self.pki
        flags = [
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            # The service `kubernetes` would get a loopback endpoint, which is refused.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            "--authorization-mode=RBAC",
            f"--tls-cert-file={pki.certificate('apiserver')}",
            f"--tls-private-key-file={pki.key('apiserver')}",
            f"--client-ca-file={pki.certificate('ca')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={pki.key('sa')}",
            f"--requestheader-client-ca-file={pki.certificate('front-proxy-ca')}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki.certificate('front-proxy-client')}",
            f"--proxy-client-key-file={pki.key('front-proxy-client')}",
        ]
        if self._programs.controllers is None:
            # Else no Pod can be made: nobody makes the namespace's service account.
            flags.append("--disable-admission-plugins=ServiceAccount")
        if self._audit:
            policy = self.folder / "audit-policy.json"
            policy.write_text(json.dumps(_AUDIT_POLICY))
            flags += [f"--audit-policy-file={policy}", f"--audit-log-path={self.folder}/audit.log"]
        return [*flags, *self._apiserver_flags]

    def _controller_flags(self) -> list[str]:
        identity = self.kubeconfig("controllers")
        return [
            f"--kubeconfig={identity}",
            f"--authentication-kubeconfig={identity}",
            f"--authorization-kubeconfig={identity}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._controllers_port}",
            "--leader-elect=false",
            # Else Deployments silently make no Pods.
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.pki.key('sa')}",
            f"--root-ca-file={self.pki.certificate('ca')}",
            f"--controllers={','.join(self._controllers)}",
            "--horizontal-pod-autoscaler-sync-period=250ms",
            "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            "--concurrent-horizontal-pod-autoscaler-syncs=2",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]

    def _launch(self, program: str, command: list[str]) -> None:
        prefix = [sys.executable, "-I", "-S", str(launch.__file__), str(os.getpid())]
        with (self.folder / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    def _await(self, program: str, url: str) -> None:
        context = ssl.create_default_context(cafile=self.pki.certificate("ca"))
        context.load_cert_chain(self.pki.certificate("admin"), self.pki.key("admin"))
        if program != "apiserver":
            # It signs a certificate of its own at each start.
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._running[program].poll() is None:
            with (
                contextlib.suppress(OSError),  # also what urllib raises
                urllib.request.urlopen(url, timeout=5, context=context),
            ):
                return
            time.sleep(_POLL_SECONDS)
        log = (self.folder / f"{program}.log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{program} is not ready:\n{log}")

    def _end(self, program: str, number: signal.Signals) -> None:
        process = self._running.pop(program)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(STOP_SECONDS)
