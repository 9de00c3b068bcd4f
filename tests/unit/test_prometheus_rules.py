"""Alerts, the runbook, the autoscaler and the dashboards speak of metrics, and labels, that there
are: a renamed one leaves them empty without a word (llm-d/llm-d#2473, istio/istio#44735).

Asked of the declarations here. That processes show what is declared, and nothing else, when they
are scraped: tests/integration/test_metrics_scrape.py, tests/unit/test_metrics_reference.py.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.metrics.catalogue import SECTIONS as COORDINATOR
from epp_worker.metrics.catalogue import SECTIONS as WORKER
from fleet.metrics import Declared, Kind
from tests.kustomize import DEPLOY, ROOT, NoKustomize, rendered
from tests.metrics_pages import declared
from tests.prometheus_rules import COMPONENT, RULES, RUNBOOK, UNIT_TESTS, as_object, promtool, rules

SCRAPED = {"fleet", "pod", "namespace", "job", "instance"}
"""Labels that the scrape adds."""

_NAME = re.compile(r"\b(?:epp_fleet|llm_d_epp|inference_\w+?|process)_\w+\b")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_SELECTED = re.compile(r"([a-z_]\w*)\{([^}]*)\}")
_MADE = re.compile(r"\blabel_replace\(.*?,\s*\"(\w+)\"")
_LISTED = re.compile(r"\blabel_values\(.*,\s*(\w+)\)")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_ANY_NAME = re.compile(r"\{__name__=~\"([^\"]+)\"[^}]*\}")


def series() -> dict[str, set[str]]:
    """Labels by the name of each series that may be scraped."""
    found: dict[str, set[str]] = {}
    for each in (*declared(COORDINATOR).values(), *declared(WORKER).values()):
        for name in _samples(each):
            found.setdefault(name, set()).update(each.labels, {"le"} & {_le(name)})
    return found


def _samples(each: Declared) -> Iterator[str]:
    if each.kind is Kind.HISTOGRAM:
        yield from (f"{each.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
    else:
        yield each.name


def _le(name: str) -> str:
    return "le" if name.endswith("_bucket") else ""


SERIES = series()
WHOLE = declared((*COORDINATOR, *WORKER)).keys()


def names_in(expression: str) -> set[str]:
    """All series that an expression asks for."""
    named = set(_NAME.findall(_ANY_NAME.sub("", expression)))
    for pattern in _ANY_NAME.findall(expression):
        named |= {name for name in SERIES if re.fullmatch(pattern, name)} or {pattern}
    return named


def unknown_in(expression: str) -> set[str]:
    """Series and labels that there are not."""
    names = names_in(expression)
    found = names - SERIES.keys()
    known = SCRAPED.union(*(SERIES.get(name, set()) for name in names))
    found |= set(_LISTED.findall(expression)) - known
    known |= set(_MADE.findall(expression))
    for labels in _GROUPED.findall(expression):
        found |= {label.strip() for label in labels.split(",")} - known - {""}
    for name, matchers in _SELECTED.findall(expression):
        if name in SERIES:
            found |= set(_LABEL.findall(matchers)) - SERIES[name] - SCRAPED
    return found


def test_what_is_unknown_is_found() -> None:
    """A renamed metric, a label that is not there, in a group or a selector."""
    assert unknown_in("sum(epp_fleet_streams_opened)") == {"epp_fleet_streams_opened"}
    assert unknown_in("sum by (fleet, color) (epp_fleet_streams_open)") == {"color"}
    assert unknown_in('epp_fleet_picks_total{result="picked"}') == {"result"}
    assert unknown_in("label_values(epp_fleet_epoch, colour)") == {"colour"}
    assert unknown_in('{__name__=~"epp_fleet_gone_.*"}') == {"epp_fleet_gone_.*"}
    assert not unknown_in(
        "histogram_quantile(0.9, sum by (le, step) "
        '(rate(epp_fleet_handover_step_seconds_bucket{fleet="f"}[5m])))'
    )


def test_alerts_ask_for_what_there_is() -> None:
    for rule in rules():
        assert names_in(rule["expr"]), rule["alert"]
        assert not unknown_in(rule["expr"]), rule["alert"]


def test_each_alert_says_what_it_is_about() -> None:
    """Severity, a line, a text, and where the runbook speaks of it; of which fleet."""
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        annotations = rule["annotations"]
        assert annotations.keys() == {"summary", "description", "runbook_url"}
        assert "{{ $labels.fleet }}" in annotations["description"], rule["alert"]
        page, _, anchor = annotations["runbook_url"].partition("#")
        assert page.endswith("/docs/runbook.md")
        assert anchor == rule["alert"].lower()


def test_the_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    """In the alerts' order, each with what it means, does, where to look, what to do."""
    text = RUNBOOK.read_text()
    sections = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    alerts = dict.fromkeys(rule["alert"] for rule in rules())
    assert [title for title, _ in sections] == list(alerts)
    for title, body in sections:
        parts = re.findall(r"^\*\*(\w+)\.\*\*", body, re.MULTILINE)
        assert parts == ["Means", "Impact", "Look", "Do", "Prevent"], title


def test_documents_speak_of_what_there_is() -> None:
    """Metrics and queries in every document, by name and labels; a histogram also as a whole."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for code in re.findall(r"`([^`\n]+)`", path.read_text()):
            if _NAME.search(code) and code not in WHOLE:
                assert not unknown_in(code), (path.name, code)


def test_the_operators_object_has_the_same_rules() -> None:
    """As text, so that nobody edits one of the two; and as kustomize renders it."""
    assert (COMPONENT / "prometheus-rule.yaml").read_text() == as_object()
    document = yaml.safe_load(as_object())
    assert document["kind"] == "PrometheusRule"
    assert document["spec"] == yaml.safe_load(RULES.read_text())


def test_kustomize_takes_the_component() -> None:
    """And leaves the templates in its texts alone."""
    try:
        objects = rendered(COMPONENT)
    except NoKustomize as missing:
        pytest.skip(str(missing))
    (rule,) = objects
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(RULES.read_text())


def test_the_autoscaler_asks_for_what_there_is() -> None:
    """And for what its adapter offers."""
    scaler = yaml.safe_load((DEPLOY / "base" / "autoscaler.yaml").read_text())["spec"]
    wanted = {metric["pods"]["metric"]["name"] for metric in scaler["metrics"]}
    worker = declared(WORKER)
    assert all(not worker[name].when for name in wanted)  # also where nothing happens
    (rule,) = yaml.safe_load((DEPLOY / "samples" / "prometheus-adapter.yaml").read_text())["rules"]
    assert not unknown_in(rule["seriesQuery"])
    assert wanted <= names_in(rule["seriesQuery"]) <= worker.keys()
    for name in wanted:
        assert rule["resources"]["overrides"].keys() <= {*worker[name].labels} | SCRAPED


def expressions(board: Any) -> Iterator[str]:
    """Every query of a dashboard, wherever it stands."""
    if isinstance(board, dict):
        for key, value in board.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(board, list):
        for each in board:
            yield from expressions(each)


def test_dashboards_ask_for_what_there_is() -> None:
    """Every name and every label in every query."""
    boards = sorted((DEPLOY / "grafana").glob("*.json"))
    assert boards
    for path in boards:
        asked = [each for each in expressions(json.loads(path.read_text())) if _NAME.search(each)]
        assert asked, path.name
        for expression in asked:
            assert not unknown_in(expression), (path.name, expression)


def test_each_alert_is_tested_firing_and_not() -> None:
    """By tests/prometheus: each has a moment at which it fires and one at which it does not."""
    fires: set[str] = set()
    rests: set[str] = set()
    for path in UNIT_TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            for each in test.get("alert_rule_test", ()):
                (fires if each["exp_alerts"] else rests).add(each["alertname"])
            for each in test.get("promql_expr_test", ()):
                (alert,) = re.findall(r'alertname="(\w+)"', each["expr"])
                samples = each["exp_samples"]
                (fires if samples else rests).add(alert)
                shown = {s["labels"] for s in samples}
                if not any('severity="warning"' in labels for labels in shown):
                    rests.add(alert)
    alerts = {rule["alert"] for rule in rules()}
    assert fires == alerts
    assert rests == alerts


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(path: Path) -> None:
    """By Prometheus' own tool."""
    done = promtool("test", "rules", str(path))
    if done is None:
        pytest.skip("promtool is not installed: apt install prometheus")
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    if done is None:
        pytest.skip("promtool is not installed: apt install prometheus")
    assert done.returncode == 0, done.stdout + done.stderr
