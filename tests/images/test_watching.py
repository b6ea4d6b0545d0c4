"""Grafana's panels and the alerts ask for what ``/metrics`` gives, and each alert names a part of the runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

import evaluation.events.metrics  # noqa: F401  (the process of events alone has them)
from agentcore_site import env
from agentcore_site.embedded.status_server import StatusServer
from agentcore_site.embedded.supervisor import ProcessState
from tests.test_docs import missing

pytestmark = pytest.mark.django_db  # by which a run of this file alone starts the services

DOCKER = env.ROOT / "docker"
BOARDS = sorted((DOCKER / "grafana/dashboards").glob("*.json"))
RULES = [
    rule
    for group in yaml.safe_load((DOCKER / "prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
PROMETHEUS_OWN = {"up"}
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "summary": ["_sum", "_count"]}
# What is beside names of metrics in a query: matchers, ranges, texts, groups of labels, functions, operators.
BESIDE = re.compile(
    r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on) \([^)]*\)|\bgroup_left\([^)]*\)"
    r"|\b[a-z_]+(?=\()|\b(?:and|or|unless|sum|max|min|avg|count)\b"
)
NAME = re.compile(r"[a-z_][a-z0-9_:]*")


def asked(query: str) -> set[str]:
    return set(NAME.findall(BESIDE.sub(" ", query)))


@pytest.fixture(scope="module")
def given(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all samples that the console's and a role's ``/metrics`` can give. Asked once: it takes a second."""
    state = ProcessState("worker", 1, 0, 1.0, None)
    status = StatusServer(0, token="", folder=tmp_path_factory.mktemp("status"), states=lambda: [state])
    with django_db_blocker.unblock():
        texts = [status.answer("/metrics", "")[2].decode(), Client().get("/metrics").content.decode()]
    status.stop()
    families = [family for text in texts for family in text_string_to_metric_families(text)]
    named = {one.name + suffix for one in families for suffix in SUFFIXES.get(one.type, [""])}
    return named | PROMETHEUS_OWN | {rule["record"] for rule in RULES if "record" in rule}


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_each_panel_asks_for_what_is_there(path: Path, given: set[str]) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    queries = [
        target["expr"]
        for panel in board["panels"]
        if panel["datasource"]["type"] == "prometheus"
        for target in panel["targets"]
    ]
    assert board["uid"] == f"agentcore-{path.stem}" and len(queries) >= 5
    assert {name for query in queries for name in asked(query)} <= given


def test_the_four_dashboards_of_the_feedback_loop_the_four_of_ace_and_one_of_our_health_are_there() -> None:
    titles = {json.loads(path.read_text(encoding="utf-8"))["title"] for path in BOARDS}
    assert titles == {
        "RL Training Overview",
        "Model Performance Comparison",
        "Trajectory Quality Metrics",
        "Reward Distribution",
        "Health",
        "ACE Overview",
        "ACE Agent Performance",
        "ACE System Performance",
        "ACE Cost Analysis",
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_each_rule_asks_for_what_is_there_and_an_alert_says_what_to_do(rule: dict[str, Any], given: set[str]) -> None:
    assert asked(rule["expr"]) <= given
    if "alert" in rule:
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert section and not missing(env.ROOT / page, section)


def test_a_role_reports_whether_its_processes_run(tmp_path: Path) -> None:
    states = [ProcessState("worker", 7, 2, 9.0, None), ProcessState("helper", 0, 0, 1.0, None)]
    status = StatusServer(0, token="a token", folder=tmp_path, states=lambda: states)
    status.stop()
    assert status.answer("/health/live", "")[0] == 503
    code, _, body = status.answer("/metrics", "Bearer a token")
    assert code == 200
    assert b'process_restarts_total{process="worker"} 2.0' in body and b'process_running{process="helper"} 0.0' in body
    assert status.answer("/metrics", "Bearer another")[0] == status.answer("/metrics", "")[0] == 401
    states[1] = ProcessState("helper", 8, 1, 1.0, None)
    assert [status.answer(f"/health/{name}", "")[0] for name in ("live", "ready")] == [200, 503]
    status.ready = True
    assert status.answer("/health/ready", "")[0] == 200
    assert status.answer("/", "")[0] == 404
