"""`deploy/grafana`: what the generator says, and something that Grafana takes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fleet.kube.names import FLEET_LABEL
from fleet.settings.load import load_settings
from tests.dashboards.__main__ import DASHBOARDS, FOLDER, texts
from tests.dashboards.parts import COLUMNS, Scope
from tests.kustomize import DEPLOY, ROOT, NoKustomize, rendered

TEXTS = texts()
DOCUMENTS: dict[str, dict[str, Any]] = {
    document["uid"]: document for document in map(json.loads, TEXTS.values())
}
BUILT_IN = {"__rate_interval", "__range", "__url_time_range", "__data", "__value", "__all"}
UNITS = {
    *("short", "none", "string", "s", "bytes", "Bps", "cps", "reqps", "percentunit"),
    *("dateTimeFromNow", "dateTimeAsIso"),
}
"""Ids of Grafana's unit list that we use."""


@pytest.fixture(params=DOCUMENTS)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each dashboard."""
    return DOCUMENTS[request.param]


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All, those inside of closed rows as well."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def shown(board: dict[str, Any]) -> list[dict[str, Any]]:
    """All that are no headings."""
    return [panel for panel in panels(board) if panel["type"] != "row"]


def variables_in(text: str) -> set[str]:
    """Names of variables that a text uses, in both of Grafana's ways to write them."""
    found = re.findall(r"\$([a-zA-Z_]\w*)|\$\{(\w+)[^}]*\}", text)
    return {bare or braced for bare, braced in found}


def strings(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def test_the_files_are_what_the_generator_says() -> None:
    """`python -m tests.dashboards` would change nothing, and no other file is there."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == TEXTS


def test_the_set() -> None:
    """Four, by address and title."""
    assert {uid: document["title"] for uid, document in DOCUMENTS.items()} == {
        "epp-fleet-fleet": "EPP Fleet / Fleet",
        "epp-fleet-pool": "EPP Fleet / Pool",
        "epp-fleet-worker": "EPP Fleet / Worker",
        "epp-fleet-coordination": "EPP Fleet / Coordination and Redis",
    }
    assert all(document["schemaVersion"] >= 39 for document in DOCUMENTS.values())
    assert all(len(uid) <= 40 for uid in DOCUMENTS), "Grafana refuses longer ones"


def test_ids_and_titles(board: dict[str, Any]) -> None:
    """Ids are unique; titles are, within a row."""
    ids = [panel["id"] for panel in panels(board)]
    assert len(set(ids)) == len(ids)
    assert min(ids) > 0
    heading, titles = "", []
    for panel in panels(board):
        if panel["type"] == "row":
            heading = panel["title"]
        titles.append((heading, panel["title"]))
    assert len(set(titles)) == len(titles)


def test_panels_do_not_overlap(board: dict[str, Any]) -> None:
    """Nor reach out of the grid; closed rows are laid out below their headings, as if open."""
    taken: dict[tuple[int, int], str] = {}
    for panel in panels(board):
        at = panel["gridPos"]
        assert at["x"] >= 0
        assert at["x"] + at["w"] <= COLUMNS, panel["title"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    lines = {y for _, y in taken}
    assert lines == set(range(max(lines) + 1)), "an empty line"


def test_every_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    """Title, description, unit, data source and a query; a closed row has its panels inside."""
    assert len(shown(board)) >= 15
    for panel in shown(board):
        assert panel["title"]
        assert len(panel["description"]) >= 10, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs
        assert len(set(refs)) == len(refs)
        for target in panel["targets"]:
            assert target["expr"]
            assert target["datasource"] == panel["datasource"]
            assert target["instant"] is not target["range"]
    for row in board["panels"]:
        if row["type"] == "row":
            assert bool(row["panels"]) is row["collapsed"], row["title"]


def test_legends_line_up(board: dict[str, Any]) -> None:
    """Of all panels with lines: a table with the same columns; one tooltip for all lines."""
    for panel in shown(board):
        if panel["type"] == "timeseries":
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["showLegend"]) == ("table", True)
            assert legend["calcs"] == ["lastNotNull", "mean", "max"]
            assert panel["options"]["tooltip"]["mode"] == "multi"
            assert all(target["legendFormat"] != "__auto" for target in panel["targets"])


def test_thresholds_rise(board: dict[str, Any]) -> None:
    """The first has no value, each further one is higher."""
    for panel in shown(board):
        first, *others = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert first["value"] is None
        values = [step["value"] for step in others]
        assert values == sorted(set(values)), panel["title"]


def test_variables(board: dict[str, Any]) -> None:
    """Every one that is used exists, before whatever uses it; every one is used."""
    known: set[str] = set()
    used: set[str] = set()
    for variable in board["templating"]["list"]:
        text = variable["query"] if isinstance(variable["query"], str) else variable["definition"]
        assert variables_in(text) <= known, variable["name"]
        assert variable["name"] not in known
        assert variable["label"]
        known.add(variable["name"])
        if variable["type"] == "query":
            assert variable["datasource"]["uid"] == "${datasource}"
            assert variable["query"]["query"] == variable["definition"]
    for text in strings({key: value for key, value in board.items() if key != "templating"}):
        used |= variables_in(text)
    for variable in board["templating"]["list"]:
        used |= variables_in(str(variable.get("definition", "")))
    assert used - BUILT_IN == known
    assert known >= {"datasource", "fleet", "docs"}


def test_queries_are_of_the_chosen_fleet(board: dict[str, Any]) -> None:
    """Each metric of each query, in panels and in variables (but for the fleet's own)."""
    expressions = [target["expr"] for panel in shown(board) for target in panel["targets"]]
    expressions += [
        variable["definition"]
        for variable in board["templating"]["list"]
        if variable["type"] == "query" and variable["name"] != "fleet"
    ]
    for expression in expressions:
        found = re.findall(r"\b(?:epp_fleet|process|llm_d)_\w+(.{0,18})", expression)
        assert found, expression
        assert all(behind.startswith('{fleet=~"$fleet"') for behind in found), expression


def test_links(board: dict[str, Any]) -> None:
    """To each of the others, with time and variables; to a runbook; and from values to a
    dashboard of the set, with variables that it has."""
    at_the_top = [link["url"] for link in board["links"] if link["includeVars"]]
    assert sorted(at_the_top) == sorted(f"/d/{uid}" for uid in DOCUMENTS if uid != board["uid"])
    assert all(link["keepTime"] for link in board["links"] if link["includeVars"])
    assert "${docs}/runbook.md" in [link["url"] for link in board["links"]]
    for url in (text for text in strings(board["panels"]) if text.startswith("/d/")):
        (uid,) = re.findall(r"^/d/([\w-]+)\?", url)
        there = {variable["name"] for variable in DOCUMENTS[uid]["templating"]["list"]}
        passed = set(re.findall(r"var-(\w+)=", url)) | set(re.findall(r"\{(\w+):queryparam", url))
        assert {"datasource", "fleet"} < passed <= there, url
        assert "${__url_time_range}" in url


def test_every_alert_is_linked_from_a_panel() -> None:
    """To its section of the runbook, and from no panel to a section that is not there."""
    urls = [
        link["url"]
        for document in DOCUMENTS.values()
        for panel in shown(document)
        for link in panel.get("links", [])
    ]
    linked = {url.removeprefix("${docs}/runbook.md#") for url in urls}
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert linked == {section.lower() for section in sections}
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert linked == {alert.lower() for alert in alerts}
    for dashboard in DASHBOARDS:
        assert set(dashboard.alerts) <= {panel.title for panel in dashboard.panels}


def test_values_link_to_pools_and_workers() -> None:
    """From the shard map to the pool, its owner and its stand-by."""
    (table,) = [each for each in shown(DOCUMENTS["epp-fleet-fleet"]) if each["type"] == "table"]
    linked = {
        override["matcher"]["options"]: entry["value"][0]["url"].partition("?")[0]
        for override in table["fieldConfig"]["overrides"]
        for entry in override["properties"]
        if entry["id"] == "links"
    }
    assert linked == {
        "Pool": "/d/epp-fleet-pool",
        "Owner": "/d/epp-fleet-worker",
        "Stand-by": "/d/epp-fleet-worker",
    }


def test_tables_name_their_columns(board: dict[str, Any]) -> None:
    """What is renamed, ordered and formatted is a label or a value of the queries; each label that
    a query has by its `by (...)` is in all of the table's lines or in a named column."""
    for panel in shown(board):
        if panel["type"] != "table":
            continue
        merge, organize = panel["transformations"]
        assert (merge["id"], organize["id"]) == ("merge", "organize")
        renamed = organize["options"]["renameByName"]
        labels = {
            label.strip()
            for target in panel["targets"]
            for group in re.findall(r"^(?:1000 \* )?\w+ by \(([^)]*)\)", target["expr"])
            for label in group.split(",")
        }
        assert labels == {field for field in renamed if not field.startswith("Value #")}
        assert {f"Value #{target['refId']}" for target in panel["targets"]} <= set(renamed)
        headings = set(renamed.values())
        for override in panel["fieldConfig"]["overrides"]:
            assert override["matcher"]["options"] in headings


def test_timelines_of_owners_are_pivoted_from_what_the_query_has() -> None:
    """Column and state are labels of the result; rows are in order of time before."""
    found = [
        panel
        for document in DOCUMENTS.values()
        for panel in shown(document)
        if panel["type"] == "state-timeline" and panel["transformations"]
    ]
    assert {panel["title"] for panel in found} == {"Owner of each pool", "Who held it"}
    for panel in found:
        order, pivot, convert = panel["transformations"]
        assert order["options"]["sort"] == [{"field": "Time"}]
        column = pivot["options"]["columnField"]
        (target,) = panel["targets"]
        assert target["format"] == "table"
        assert f'"{column}"' in target["expr"] or f"by ({column}, " in target["expr"]
        assert pivot["options"]["valueField"] == "worker"
        (conversion,) = convert["options"]["conversions"]
        assert conversion == {"targetField": f"Time\\{column}", "destinationType": "time"}


def test_workers_have_colours() -> None:
    """Each name that may end a worker's id has one, and only one; neighbours' differ."""
    (panel,) = [
        each
        for each in shown(DOCUMENTS["epp-fleet-fleet"])
        if each["title"] == "Owner of each pool"
    ]
    mappings = panel["fieldConfig"]["defaults"]["mappings"]

    def colors(name: str) -> list[str]:
        return [
            mapping["options"]["result"]["color"]
            for mapping in mappings
            if re.search(mapping["options"]["pattern"].strip("/"), name)
        ]

    names = [f"worker-{number}" for number in range(10)]
    found = [colors(name) for name in names]
    assert all(len(each) == 1 for each in found)
    assert len({each[0] for each in found}) == len(names)
    assert len(colors("epp-fleet-worker-7d4b9c6f5-x2x4z")) == 1


def test_everything_is_asked_of_a_fleet_somewhere() -> None:
    """Panels that only a cluster's fleet fills are few, and none of the shard map's."""
    few = {
        panel.title
        for dashboard in DASHBOARDS
        for panel in dashboard.panels
        if panel.scope is Scope.CLUSTER
    }
    assert few == {
        "API server",
        "Age of the copy of EndpointSlices",
        "Certificates",
        "EndpointSlices failing",
        "Lists and watches",
        "Objects held",
        "Throttled by the API server",
    }


def test_config_maps() -> None:
    """One for each dashboard, valid, found by Grafana's sidecar; small enough for `apply`, which
    keeps a copy in an annotation of at most 256 kB."""
    try:
        objects = rendered(DEPLOY / "components" / "grafana-dashboards")
    except NoKustomize as missing:
        pytest.skip(str(missing))
    found = {}
    for each in objects:
        kubernetes_validate.validate(each, "1.37", strict=True)
        assert each["kind"] == "ConfigMap"
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((file, text),) = each["data"].items()
        assert len(json.dumps(each)) < 256 * 1024
        document = json.loads(text)
        assert file == f"{document['uid']}.json"
        found[document["uid"]] = document
    assert found == DOCUMENTS


def test_scraped_processes_bear_their_fleet() -> None:
    """The pods' label is the fleet's name, and both ways to scrape make `fleet` of it."""
    settings = load_settings(DEPLOY / "base" / "settings.yaml", {}, {})
    meta = f"__meta_kubernetes_pod_label_{re.sub('[^a-z]', '_', FLEET_LABEL)}"
    for component in ("coordinator", "worker"):
        documents = yaml.safe_load_all((DEPLOY / "base" / f"{component}.yaml").read_text())
        (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert labels[FLEET_LABEL] == settings.fleet
    monitors = (DEPLOY / "components" / "pod-monitor" / "pod-monitor.yaml").read_text()
    for monitor in yaml.safe_load_all(monitors):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["relabelings"] == [{"sourceLabels": [meta], "targetLabel": "fleet"}]
        assert endpoint["honorLabels"] is True
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    assert job["honor_labels"] is True
    assert {"source_labels": [meta], "target_label": "fleet"} in job["relabel_configs"]


def test_provisioning() -> None:
    """As Grafana's documentation has these files."""
    folder = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].startswith("/")
    (source,) = yaml.safe_load((folder / "datasources.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    (job,) = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yaml").read_text())["scrape_configs"]
    assert source["jsonData"]["timeInterval"] == job["scrape_interval"]


def test_every_panel_is_documented() -> None:
    """docs/dashboards.md names each dashboard and each of its rows."""
    text = (ROOT / "docs" / "dashboards.md").read_text()
    for document in DOCUMENTS.values():
        assert document["uid"] in text
        for row in document["panels"]:
            if row["type"] == "row":
                assert row["title"] in text, row["title"]
