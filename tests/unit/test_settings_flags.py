"""Command lines of the processes."""

from pathlib import Path

import pytest

from fleet.errors import SettingsError
from fleet.settings.flags import coordinator_parser, parse_process, worker_parser

REACHABLE = {
    "EPP_FLEET_WORKER__ADVERTISE_HOST": "10.0.0.7",
    "EPP_FLEET_COORDINATOR__ADVERTISE_HOST": "10.0.0.7",
    "EPP_FLEET_SECURITY__TOKEN_FILE": "/run/token",
    "EPP_FLEET_SECURITY__CA_FILE": "/run/ca.crt",
    "EPP_FLEET_SECURITY__CERTIFICATE_FILE": "/run/tls.crt",
    "EPP_FLEET_SECURITY__KEY_FILE": "/run/tls.key",
}


def test_flags_set_their_fields_over_file_and_environment(tmp_path: Path) -> None:
    """Each flag of the worker reaches its own field."""
    path = tmp_path / "fleet.yaml"
    path.write_text("fleet: prod\nworker:\n  health_port: 7\n")
    argv = "--id w-1 --host 127.0.0.1 --ext-proc-port 1 --health-port 2 --internal-port 3"
    args = parse_process(
        worker_parser(),
        "worker",
        [*argv.split(), "--http-port", "4", "--config", str(path)],
        {"EPP_FLEET_SECURITY__TOKEN_FILE": "/run/token"},
    )
    worker = args.settings.worker
    assert args.id == "w-1"
    assert args.settings.fleet == "prod"
    assert worker.host == "127.0.0.1"
    ports = (worker.ext_proc_port, worker.health_port, worker.internal_port, worker.http_port)
    assert ports == (1, 2, 3, 4)


def test_the_coordinators_flags_set_its_own_section() -> None:
    """The same flag names mean the coordinator's listeners there."""
    argv = ["--id", "c-0", "--http-port", "18080", "--internal-port", "18081"]
    settings = parse_process(coordinator_parser(), "coordinator", argv, REACHABLE).settings
    assert (settings.coordinator.http_port, settings.coordinator.internal_port) == (18080, 18081)
    assert settings.worker.http_port == 9090


def test_the_id_comes_from_the_pod_else_from_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """--id, then POD_NAME, then the host's first label in lower case."""
    monkeypatch.setattr("socket.gethostname", lambda: "Node-7.example.org")
    environ = {**REACHABLE, "POD_NAME": "epp-abc12"}
    assert parse_process(worker_parser(), "worker", ["--id", "w"], environ).id == "w"
    assert parse_process(worker_parser(), "worker", [], environ).id == "epp-abc12"
    assert parse_process(worker_parser(), "worker", [], REACHABLE).id == "node-7"


def test_id_and_settings_problems_are_told_together() -> None:
    """One start shows all that is wrong, first of all a bad id."""
    with pytest.raises(SettingsError) as caught:
        parse_process(
            worker_parser(), "worker", ["--id", "A b", "--http-port", "x"], {"POD_NAME": "ok"}
        )
    assert [line.partition(":")[0] for line in caught.value.problems] == ["id", "worker.http_port"]


def test_a_process_needs_an_address_a_token_and_certificates() -> None:
    """0.0.0.0 is nowhere to others, nobody talks to a process without the fleet's token, and the
    token crosses no wire in plaintext."""
    with pytest.raises(SettingsError) as caught:
        parse_process(worker_parser(), "worker", ["--id", "w"], {})
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "worker.advertise_host",
        "security.token_file",
        "worker.host",
    ]


@pytest.mark.parametrize("argv", [["--nope"], ["--http-port"], ["--http", "1"]])
def test_a_usage_error_ends_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown, incomplete and shortened flags: usage on standard error, exit code 2."""
    with pytest.raises(SystemExit) as caught:
        parse_process(worker_parser(), "worker", argv, {})
    assert caught.value.code == 2
    assert "usage: epp-fleet-worker" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names defaults, where settings come from, and exit codes."""
    with pytest.raises(SystemExit) as caught:
        parse_process(coordinator_parser(), "coordinator", ["--help"], {})
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in ("8080", "EPP_FLEET_REDIS__URL", "exit codes", "POD_NAME"):
        assert word in text
