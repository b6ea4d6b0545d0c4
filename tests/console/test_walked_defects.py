"""Defects that people met in the console, each with the text or page that they see now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.template.loader import render_to_string
from django.test import Client

from agentcore_site.console.menu import ACTIONS
from agentcore_site.jobs.services import share_create
from agentcore_site.tenancy.actors import Actor
from budgets.models import ModelPrice
from experiences.agents.services.endpoints import endpoint_create
from experiences.models import Agent, Dataset, TrajectoryRecord
from experiences.trajectories.storage import TrajectoryScope, trajectories_write
from tests.console.conftest import SignIn
from tests.console.test_launch import text
from tests.support.pages import html
from tests.support.rows import owner_of, trajectory
from tests.training.services.test_admission import measured, reader, rows
from training.estimates.measured import Rates, Work, plan
from training.models import TrainingRun

__all__ = ["measured", "reader", "rows"]
pytestmark = pytest.mark.django_db


# -- the plan ----------------------------------------------------------------------------------------------------------


def bound(cost: float, most: float, basis: str = "jobs") -> str:
    result = render_to_string(
        "training/_bound.html", {"one": {"cost_usd": cost, "cost_usd_p90": most, "cost_basis": basis}}
    )
    return " ".join(result.split())


def test_a_plan_claims_no_bound_that_rounds_to_its_expected_cost() -> None:
    assert "(90 % likely below $0.41, based on earlier jobs)" in bound(0.27, 0.41)
    assert "(90 % likely not to exceed this, based on earlier jobs)" in bound(0.271, 0.2712)
    # Rollouts that cost the same and jobs that came out as planned do not make the bound the mean: jobs differ.
    rates = Rates(1.0, 100.0, sd_micros=0.0, n=200)
    spread = plan(Work(1_000, 0, 0), rates, ratios=[0.9, 1.0, 1.1, 1.2, 1.26])
    assert spread.basis == "jobs" and spread.dear_micros > 1.26 * spread.cost_micros
    assert plan(Work(1_000, 0, 0), rates).dear_micros == 1.5 * spread.cost_micros


def test_a_model_without_a_price_leads_to_the_form_of_prices_with_its_name_filled_in(
    adam: Any, console: Client, signed_in: SignIn, reader: Agent, rows: Dataset
) -> None:
    ModelPrice.objects.all().delete()
    form = {"agent": reader.pk, "source": "dataset", "dataset": rows.pk, "max_budget_usd": "5"}
    shown = html(signed_in(adam).post("/launch/plan/", form))
    assert "/budgets/prices/set/?model=small" in shown and "Set the price of small" in shown
    assert 'value="small"' in html(signed_in(adam).get("/budgets/prices/set/?model=small"))
    assert "/budgets/prices/set/" not in html(console.post("/launch/plan/", form))  # who may not set one


def test_the_form_of_an_endpoint_says_whether_a_key_is_stored(adam: Any, signed_in: SignIn, reader: Agent) -> None:
    client = signed_in(adam)
    assert "None is stored." in html(client.get(f"/endpoints/{reader.endpoint_id}/"))
    keyed = endpoint_create(
        Actor(adam), name="keyed", kind="openai", base_url="http://127.0.0.1:9/v1", model="m", api_key="sk-secret"
    )
    shown = html(client.get(f"/endpoints/{keyed.pk}/"))
    assert "A key is stored; empty: keep it." in shown and "sk-secret" not in shown


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "sent", "named"),
    [
        (
            "/agents/new/",
            {"name": "", "runtime": "http", "url": "nowhere", "environment_options": "{"},
            ["Name", "JSON"],
        ),
        (
            "/endpoints/new/",
            {"name": "", "kind": "openai", "base_url": "", "options": "["},
            ["Name", "Base URL", "JSON"],
        ),
        ("/tool-servers/new/", {"name": "", "transport": "http"}, ["Name"]),
        ("/prompt-packs/new/", {"name": ""}, ["Name"]),
        ("/budgets/prices/set/", {"model": ""}, ["Model"]),
        ("/budgets/new/", {"limit": "much"}, ["Limit"]),
    ],
)
def test_a_form_lists_all_its_errors_at_its_head(
    adam: Any, signed_in: SignIn, address: str, sent: dict[str, str], named: list[str]
) -> None:
    shown = html(signed_in(adam).post(address, sent))
    head, _, _ = shown.partition("</ul>")
    summary = head.rpartition("Please correct")[2]
    assert "Nothing was saved. Please correct:" in shown, address
    assert [one for one in named if one not in summary] == [], (address, summary[:600])


def test_an_upload_names_each_line_that_is_wrong_in_plain_words(console: Client, agent: Agent) -> None:
    lines = b'{"query": "ok?", "expected_outcome": {}}\nnot json\n["query", 7]\n'
    answer = console.post("/launch/upload/", {"agent": agent.pk, "file": SimpleUploadedFile("bad.jsonl", lines)})
    shown = text(answer)
    assert "Line 2 is not JSON from its character 1 on" in shown and "Line 3 must be an object" in shown
    assert "Expecting value" not in shown and "char 0" not in shown


# -- lists and pages ---------------------------------------------------------------------------------------------------


def test_the_place_of_a_rollout_is_never_a_comma_alone(console: Client, run: TrainingRun) -> None:
    played = trajectory(5, 0, 0, "how many?", True)
    trajectories_write(replace(owner_of(run), purpose="selection", line="30"), [played])
    assert isinstance(owner_of(run), TrajectoryScope) and TrajectoryRecord.objects.filter(purpose="selection").exists()
    shown = html(console.get(f"/jobs/{run.pk}/?tab=trajectories"))
    assert "selection, iteration 30" in shown and ">, 30" not in shown


def test_a_verdict_is_whole_in_the_list_of_jobs(console: Client, run: TrainingRun) -> None:
    verdict = "Better than the untrained baseline by 40.0 points (95 % interval 20.0 to 60.0), and " + "so on " * 20
    TrainingRun.objects.filter(pk=run.pk).update(verdict={"verdict": verdict, "improvement": 0.4})
    shown = html(console.get("/jobs/"))
    assert verdict.strip() in shown and 'class="fill wide" data-label="Verdict"' in shown


def test_tool_servers_checkpoints_and_share_links_have_a_place(
    console: Client, operator: Actor, run: TrainingRun
) -> None:
    assert "experiences:tool_servers" in {entry.url_name for entry in ACTIONS}
    assert 'href="/tool-servers/"' in html(console.get("/search/palette/?q=tool+server"))
    assert 'href="/checkpoints/"' in html(console.get("/jobs/"))
    share_create(operator, run.job)
    listed = html(console.get("/share-links/"))
    assert "in 3" in listed and run.job.title in listed  # its end, some thirty days from now
    assert 'href="/share-links/"' in html(console.get("/"))
