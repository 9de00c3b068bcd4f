"""Settings: merged in order, checked as a whole, and every message says what to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.errors import SettingsError
from fleet.settings import RedisSettings, Settings, WorkerSettings, load_settings
from fleet.settings.fields import all_fields
from fleet.settings.limits import masked_url
from fleet.settings.reference import reference

ROOT = Path(__file__).parents[2]


def _problems(
    path: Path | None = None,
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ or {}, flags or {})
    return caught.value.problems


def _file(folder: Path, text: str) -> Path:
    path = folder / "fleet.yaml"
    path.write_text(text)
    return path


def test_the_defaults_are_good() -> None:
    """No file, no environment, no flags: the defaults, and they pass their own checks."""
    assert load_settings(None, {}, {}) == Settings()


def test_later_layers_win(tmp_path: Path) -> None:
    """File, then environment, then flags; what nobody names keeps its default."""
    path = _file(
        tmp_path,
        "fleet: prod\nredis:\n  url: redis://file:6379/0\nworker:\n  http_port: 1\n  weight: 2\n",
    )
    environ = {"EPP_FLEET_REDIS__URL": "redis://env:6379/0", "EPP_FLEET_WORKER__HTTP_PORT": "2"}
    settings = load_settings(path, environ, {"worker.http_port": "3"})
    assert settings == Settings(
        fleet="prod",
        redis=RedisSettings(url="redis://env:6379/0"),
        worker=WorkerSettings(http_port=3, weight=2),
    )
    assert load_settings(path, {"EPP_FLEET_FLEET": "test"}, {}).fleet == "test"


def test_other_names_of_the_prefix_are_left_alone() -> None:
    """Tools' variables and Kubernetes' service links are no settings."""
    environ = {
        "EPP_FLEET_COORDINATOR": "http://x",
        "EPP_FLEET_TOKEN_FILE": "/t",
        "EPP_FLEET_SERVICE_HOST": "10.0.0.1",
        "EPP_FLEET_PORT_9002_TCP": "tcp://10.0.0.1:9002",
    }
    assert load_settings(None, environ, {}) == Settings()


def test_whole_numbers_are_good_where_a_number_is_wanted(tmp_path: Path) -> None:
    """`ttl_seconds: 3` is 3.0; a section without settings is an empty one."""
    path = _file(tmp_path, "election:\n  ttl_seconds: 3\nredis:\n")
    ttl = load_settings(path, {}, {}).election.ttl_seconds
    assert (ttl, type(ttl)) == (3.0, float)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    """One line per problem, first the path, then what is wrong, the value, and the place."""
    path = _file(
        tmp_path,
        "redis:\n  tmeout: 3\n  url: http://h\nworker:\n  ext_proc_port: '9002'\n"
        "  health_port: 70000\nlog:\n  level: loud\nrouts: {}\n",
    )
    problems = _problems(
        path,
        {"EPP_FLEET_ELECTION__TTL_SECONDS": "2s", "EPP_FLEET_REDIS__MIN_ACK": "1"},
        {"worker.http_port": "x"},
    )
    assert [line.replace(str(path), "FILE") for line in problems] == [
        "redis.tmeout: unknown setting; known here: "
        "min_acks, request_timeout_seconds, url (FILE:2)",
        "redis.url: must begin with redis://, rediss://, unix://, redis+sentinel://, "
        "rediss+sentinel://; got 'http://h' (FILE:3)",
        "worker.ext_proc_port: must be a whole number, such as 9002; got the text '9002' (FILE:5)",
        "worker.health_port: must be 1 to 65,535; got 70000 (FILE:6)",
        "log.level: must be debug, info, warning or error; got 'loud' (FILE:8)",
        "routs: unknown setting; did you mean routes? (FILE:9)",
        "election.ttl_seconds: must be a number of seconds, such as 2.0; got '2s' "
        "(environment EPP_FLEET_ELECTION__TTL_SECONDS)",
        "redis.min_ack: unknown setting; did you mean redis.min_acks? "
        "(environment EPP_FLEET_REDIS__MIN_ACK)",
        "worker.http_port: must be a whole number, such as 9090; got 'x' (command line)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the settings file is empty"),
        ("# nothing\n", "the settings file is empty"),
        ("- a\n", "must be a mapping"),
        ("redis: [\n", "not valid YAML: line 2, column 1"),
        ("fleet: \x01\n", "not valid YAML"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str, expected: str) -> None:
    """The message begins with the file and says what it is instead of settings."""
    path = _file(tmp_path, text)
    (problem,) = _problems(path)
    assert problem.startswith(f"{path}: ")
    assert expected in problem


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, not text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"fleet: \xff")
    assert _problems(tmp_path / "no.yaml") == (
        f"{tmp_path}/no.yaml: the settings file cannot be read: no such file or directory",
    )
    assert "is a directory" in _problems(tmp_path)[0]
    assert "not UTF-8 at byte 7" in _problems(binary)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker:\n  weight: 1\n  weight: 2\n", "worker.weight: stands twice, first on line 2"),
        ("worker: 3\n", "worker: is a section"),
        ("fleet:\n", "fleet: has no value"),
        ("fleet: Prod_1\n", "fleet: must be a DNS label"),
        ("log:\n  level: no\n", 'log.level: must be text, such as "info"; got false'),
        ("worker:\n  weight: true\n", "worker.weight: must be a whole number"),
        ("worker:\n  weight: 1.5\n", "worker.weight: must be a whole number"),
        ("scrape:\n  budget_ratio: .nan\n", "scrape.budget_ratio: must be a number"),
        ("scrape:\n  budget_ratio: 0\n", "scrape.budget_ratio: must be above 0, at most 1"),
        ("redis:\n  url: redis://h:99999\n", "redis.url: host or port cannot be read"),
        ("redis:\n  url: redis://:1\n", "redis.url: names no host"),
        ("redis:\n  url: redis://h/x\n", "redis.url: the path must be a database number"),
        ("redis:\n  url: 'unix://'\n", "redis.url: names no socket"),
        ("worker:\n  host: ''\n", "worker.host: must not be empty"),
        ("worker:\n  tick_seconds: 1\n", "did you mean coordinator.tick_seconds?"),
    ],
)
def test_each_kind_of_mistake_has_its_message(tmp_path: Path, text: str, expected: str) -> None:
    """What is wrong and what is wanted, for every kind of field."""
    problems = _problems(_file(tmp_path, text))
    assert any(expected in problem for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "redis:\n  url: http://user:SECRET@h\n",
        "redis:\n  url: redis://:SE?SECRET@h/x\n",
        "redis:\n  url: redis://h/x?password=SECRET\n",
        "redis:\n  url: redis//:SECRET@h\n",
        "redis:\n  url: SECRET\n",
        "redis:\n  url: [SECRET]\n",
        "redis:\n  url: *SECRET\n",
        "redis:\n  url: !SECRET x\n",
        "redis:\n  pasword: SECRET\n",
        "redis: SECRET\n",
        "passwords: SECRET\n",
        "redis: 'SECRET\n",
    ],
)
def test_no_message_shows_a_password(tmp_path: Path, text: str) -> None:
    """Wherever a password may have been put, the message leaves it out."""
    assert "SECRET" not in "\n".join(_problems(_file(tmp_path, text)))


def test_a_url_is_shown_without_its_password() -> None:
    """For logs: host and database stay readable."""
    assert masked_url("redis://h:6379/0") == "redis://h:6379/0"
    assert masked_url("rediss://user:secret@h:6379/0") == "rediss://***@h:6379/0"
    assert masked_url("unix:///run/r.sock?password=secret") == "unix:///run/r.sock?***"
    assert (
        masked_url("redis+sentinel://a:1,[::1]:2/main/0") == "redis+sentinel://a:1,[::1]:2/main/0"
    )


@pytest.mark.parametrize(
    "rest", ["user:secret", "user:secret/0", ":secret", "h:1,user:secret/x", "[secret"]
)
def test_a_url_without_a_host_shows_no_password(rest: str) -> None:
    """What stands where a port would may be one whose host was forgotten."""
    assert masked_url(f"redis://{rest}") == "redis://***"


def test_the_reference_file_is_the_defaults_and_names_every_field() -> None:
    """deploy/settings.yaml is what the code says, whole: parsed it gives exactly `Settings()`."""
    path = ROOT / "deploy" / "settings.yaml"
    assert path.read_text() == reference(), "run python -m fleet.settings.reference"
    assert load_settings(path, {}, {}) == Settings()
    text = path.read_text()
    for field in all_fields().values():
        assert f"{field.name}: " in text


def test_every_field_can_be_set_by_environment() -> None:
    """The default of each field, given as text, is read back as the same value and type."""
    environ = {
        f"EPP_FLEET_{path.upper().replace('.', '__')}": str(field.default)
        for path, field in all_fields().items()
    }
    assert load_settings(None, environ, {}) == Settings()
    assert len(environ) > 50
    assert replace(Settings(), fleet="x") != Settings()
