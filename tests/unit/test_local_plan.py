"""What is found wrong before anything starts, and what the processes are told."""

import dataclasses
import socket
import stat
from pathlib import Path

import pytest

from fleet.errors import SettingsError
from fleet.local import binaries, plan
from fleet.local.model_engine import Speed
from fleet.local.options import LocalOptions
from fleet.local.plan import RunFolder, child_environ, make_plan, make_run_folder, write_settings
from fleet.local.sample import POOLS, write_sample
from fleet.settings import load_settings
from fleet.sources.folder import check_folder

POOL = """\
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: red, namespace: acme}
spec:
  selector: {matchLabels: {app: red}}
  targetPorts: [{number: %s}]
  endpointPickerRef: {name: red-epp, port: {number: 9002}}
"""


def _problems(options: LocalOptions, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        make_plan(options, environ or {})
    return caught.value.problems


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    """Options, environment and manifests: one line each, nothing hidden behind the first."""
    (tmp_path / "red.yaml").write_text(POOL % "0")
    options = LocalOptions(state_file=tmp_path / "s", manifests=tmp_path, workers=0)
    problems = "\n".join(_problems(options, {"EPP_FLEET_WORKER__WEIGHT": "heavy"}))
    assert "--workers: 0" in problems
    assert "worker.weight" in problems
    assert "red.yaml" in problems
    assert "targetPorts" in problems


def test_missing_envoy_names_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the extra, or do without a gateway."""
    monkeypatch.setattr(binaries, "_package_folder", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    problems = "\n".join(_problems(LocalOptions(state_file=tmp_path / "s")))
    assert "--gateway none" in problems
    assert "epp-fleet[local]" in problems
    assert "--redis-url" in problems


def test_without_gateway_and_store_no_program_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--gateway none --redis-url URL` works without the extra."""
    monkeypatch.setattr(binaries, "_package_folder", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    url = "redis://127.0.0.1:6379/0"
    made = make_plan(LocalOptions(state_file=tmp_path / "s", gateway=False, redis_url=url), {})
    assert (made.envoy, made.valkey, made.settings.redis.url) == (None, None, url)


def test_sentinels_need_acknowledgements_here_too(tmp_path: Path) -> None:
    """The lease of a local fleet is in its store, whatever `auto` would make of the settings."""
    url = "redis+sentinel://127.0.0.1:26379/fleet"
    options = LocalOptions(state_file=tmp_path / "s", gateway=False, redis_url=url)
    (problem,) = _problems(options)
    assert problem.startswith("redis.min_acks: ")
    assert "set redis.min_acks: 1" in problem
    made = make_plan(options, {"EPP_FLEET_REDIS__MIN_ACKS": "1"})
    assert made.settings.redis.min_acks == 1


def test_settings_that_refuse_our_own_gateway_are_told(tmp_path: Path) -> None:
    """Its Envoy speaks plaintext: with TLS demanded every request would fail; without a gateway
    it is what somebody else's gateway is tried with."""
    options = LocalOptions(state_file=tmp_path / "s", redis_url="redis://127.0.0.1:6379/0")
    for name, value in (("TLS", "require"), ("TLS_CLIENT_CA_FILE", "/ca.crt")):
        environ = {f"EPP_FLEET_WORKER__{name}": value}
        (problem,) = _problems(options, environ)
        assert problem.startswith(f"worker.{name.lower()}: ")
        assert "--gateway none" in problem
        make_plan(dataclasses.replace(options, gateway=False), environ)


def test_a_gateway_port_in_use_is_told(tmp_path: Path) -> None:
    """Before anything starts; the message names the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        problems = _problems(LocalOptions(state_file=tmp_path / "s", gateway_port=port))
    assert problems == (f"--gateway-port: 127.0.0.1:{port} is in use; choose another",)


def test_the_sample_is_a_good_folder(tmp_path: Path) -> None:
    """6 pools of 4 pods, every pod on an address of its own, each pool with one model."""
    config = write_sample(tmp_path, 8000, Speed())
    assert check_folder(tmp_path) == []
    assert len({server.address for server in config.servers}) == 24
    assert {server.models for server in config.servers} == {(pool.model,) for pool in POOLS}


def test_children_read_what_was_merged_here(tmp_path: Path) -> None:
    """The user's settings, the fleet's own on top; readable again by the same loader; secret."""
    user = tmp_path / "user.yaml"
    user.write_text("fleet: mine\nmembership: {ttl_seconds: 3.0}\nworker: {host: 10.0.0.1}\n")
    settings = load_settings(user, {"EPP_FLEET_LOG__LEVEL": "debug"}, {})
    folder = RunFolder(tmp_path)
    url = "redis://127.0.0.1:1234/0"
    write_settings(folder, settings, redis_url=url, manifests=Path("/m"), token="t0ken")
    read = load_settings(folder.settings, {}, {})
    assert (read.fleet, read.membership.ttl_seconds, read.log.level) == ("mine", 3.0, "debug")
    assert (read.redis.url, read.source.manifests) == (url, "/m")
    assert (read.worker.host, read.coordinator.host) == ("127.0.0.1", "127.0.0.1")
    assert read.routes.eds_directory == str(tmp_path / "eds")
    assert read.worker.tls == "off"
    assert Path(read.security.token_file).read_text() == "t0ken\n"
    for path in (folder.settings, folder.token):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_children_do_not_see_settings_in_the_environment() -> None:
    """They would override the file; everything else is passed on."""
    assert child_environ({"EPP_FLEET_REDIS__URL": "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_run_folder_is_private(tmp_path: Path) -> None:
    """Below the runtime folder if that can be used, for the owner only."""
    folder = make_run_folder({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert folder.root.parent == tmp_path / "epp-fleet"
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700
    folder.remove()
    assert list((tmp_path / "epp-fleet").iterdir()) == []
    elsewhere = plan.make_run_folder({"XDG_RUNTIME_DIR": str(tmp_path / "gone")})
    assert elsewhere.root.is_dir()
    assert tmp_path not in elsewhere.root.parents or elsewhere.root.parent != folder.root.parent
    elsewhere.remove()
    assert not elsewhere.root.exists()
