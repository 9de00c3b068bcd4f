"""The certificates of one control plane, made by openssl in about 0.2 s."""

import subprocess
from pathlib import Path

_SERVER = (
    "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost,"
    "DNS:kubernetes.default.svc"
)
_CLIENT = "extendedKeyUsage=clientAuth"


class Pki:
    """A folder with two CAs (`ca`, `front-proxy-ca`), the leaves they signed, and the key of
    service accounts. NAME.crt and NAME.key each; `sa.key` and `sa.pub`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._authority("ca")
        self._authority("front-proxy-ca")
        self.leaf("apiserver", "/CN=kube-apiserver", _SERVER)
        self.client("admin", "/O=system:masters/CN=admin")
        self.client("controllers", "/CN=system:kube-controller-manager")
        self.leaf(
            "front-proxy-client", "/CN=front-proxy-client", _CLIENT, authority="front-proxy-ca"
        )
        self._key("sa")
        _openssl("ec", "-in", self.key("sa"), "-pubout", "-out", str(folder / "sa.pub"))

    def certificate(self, name: str) -> str:
        """The path of NAME.crt."""
        return str(self.folder / f"{name}.crt")

    def key(self, name: str) -> str:
        """The path of NAME.key."""
        return str(self.folder / f"{name}.key")

    def client(self, name: str, subject: str) -> None:
        """A client certificate: O= are the user's groups, CN= its name."""
        self.leaf(name, subject, _CLIENT)

    def leaf(self, name: str, subject: str, extensions: str, *, authority: str = "ca") -> None:
        """A certificate signed by one of the CAs.

        Args:
            extensions: lines of an openssl extension file.
        """
        request, lines = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        lines.write_text(extensions + "\n")
        self._key(name)
        _openssl("req", "-new", "-key", self.key(name), "-subj", subject, "-out", str(request))
        signer = ["-CA", self.certificate(authority), "-CAkey", self.key(authority)]
        signer += ["-CAcreateserial", "-days", "30", "-extfile", str(lines)]
        _openssl("x509", "-req", "-in", str(request), *signer, "-out", self.certificate(name))

    def _authority(self, name: str) -> None:
        self._key(name)
        made = ["-x509", "-key", self.key(name), "-days", "30", "-subj", f"/CN=kubetest-{name}"]
        _openssl("req", *made, "-out", self.certificate(name))

    def _key(self, name: str) -> None:
        curve = ["-name", "prime256v1", "-genkey", "-noout"]
        _openssl("ecparam", *curve, "-out", self.key(name))


def _openssl(*words: str) -> None:
    done = subprocess.run(
        ["openssl", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"openssl {words[0]}: {done.stderr.decode(errors='replace')[-500:]}")
