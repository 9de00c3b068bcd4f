"""`epp-fleet config check` of picker configurations."""

from pathlib import Path

import pytest

from fleet.cli.main import main
from fleet.picking.decode import looks_like_one
from tests.picking import HEAD

GOOD = """
featureGates: [flowControl]
plugins:
- {type: queue-scorer}
- {type: lora-affinity-scorer, name: lora}
- {type: latency-scorer}
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}
schedulingProfiles:
- name: chat
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: lora, weight: 1.5}
  - {pluginRef: latency-scorer}
"""


def check(file: Path, text: str, *flags: str) -> int:
    file.write_text(text)
    return main(["config", "check", str(file), *flags])


def test_a_good_one_is_shown_as_it_will_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each plugin with its profile, weight and parameters; what defaults add; what is not done."""
    assert check(tmp_path / "chat.yaml", HEAD + GOOD) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0][1:] == ["good"]
    assert ["chat", "scorer", "queue-scorer", "2"] in rows
    assert ["chat", "scorer", "lora", "1.5"] in rows
    assert ["chat", "scorer", "latency-scorer,", "left", "out", "1"] in rows
    assert ["chat", "picker", "max-score-picker", "maxNumOfEndpoints:", "2"] in rows
    assert ["-", "profile", "handler", "single-profile-handler"] in rows
    text = " ".join(word for row in rows for word in row)
    assert "warning: featureGates: flow control is not available" in text
    assert "warning: plugins[2] (latency-scorer): latency-scorer is not available" in text


def test_a_long_path_stays_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that it can be copied, and found by scripts."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    assert check(folder / "chat.yaml", HEAD + GOOD) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{folder / 'chat.yaml'}: good"


def test_a_wrong_one_is_told_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chat.yaml"
    assert check(file, HEAD + GOOD.replace("weight: 1.5", "weight: x")) == 2
    said = capsys.readouterr()
    assert said.err == (
        f'epp-fleet: {file}: schedulingProfiles[0].plugins[1].weight: must be a number, is "x"\n'
    )
    assert said.out == ""


def test_experimental_plugins_are_asked_for(tmp_path: Path) -> None:
    text = HEAD + "plugins: [{type: session-affinity-filter}]\n"
    assert check(tmp_path / "a.yaml", text) == 2
    assert check(tmp_path / "a.yaml", text, "--experimental") == 0


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (HEAD, True),
        ('{\n  "apiVersion": "llm-d.ai/v1alpha1"}', True),
        ("# c\nkind: X\n", True),
        ("election:\n  kind: auto\n", False),
        ("fleet: kind\n", False),
    ],
)
def test_settings_files_are_told_apart(text: str, is_one: bool) -> None:
    assert looks_like_one(text) is is_one
