"""Pages and REST of production traces."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.tenancy.actors import Actor
from evaluation.serving.feedback.services import feedback_give
from evaluation.serving.feedback.sweep import sweep
from evaluation.serving.models import Feedback, ProductionTrace
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests.evaluation.serving.test_feedback import answered
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.queries import queries_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def traces(operator: Actor, agent: Agent) -> dict[str, ProductionTrace]:
    release = release_make(operator, agent)
    other = AgentFactory(organization=agent.organization, created_by=operator.user, name="Other", slug="other")
    values = {
        "liked": answered(agent, asked="When does it open?", release_id=release.pk, arm="new", session="s-1"),
        "disliked": answered(agent, "At dawn.", asked="When does it close?", cost_micros=900, duration_ms=2.0),
        "failed": answered(agent, "", status="failed", error="The model is away.", http_status=502),
        "plain": answered(other, asked="Say <b>hello</b>."),
    }
    feedback_give(operator, values["liked"], metric="thumbs", value="up")
    feedback_give(operator, values["disliked"], metric="correction", text="At six.")
    sweep()
    return values


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({}, {"liked", "disliked", "failed", "plain"}),
        ({"agent": "clerk"}, {"liked", "disliked", "failed"}),
        ({"feedback": "good"}, {"liked"}),
        ({"feedback": "bad"}, {"disliked"}),
        ({"feedback": "any"}, {"liked", "disliked"}),
        ({"feedback": "none", "status": "ok"}, {"plain"}),
        ({"status": "failed"}, {"failed"}),
        ({"arm": "new"}, {"liked"}),
        ({"session": "s-1"}, {"liked"}),
        ({"search": "at DAWN"}, {"disliked"}),
        ({"search": "is away"}, {"failed"}),
    ],
)
def test_both_lists_narrow_alike(
    traces: dict[str, ProductionTrace], olivia: Any, console: Client, asked: dict[str, str], names: set[str]
) -> None:
    by_rest = {row["id"] for row in Caller(olivia).get("traces", **asked).json()["results"]}
    assert by_rest == {str(traces[name].pk) for name in names}
    page = html(console.get("/traces/", {"q" if name == "search" else name: value for name, value in asked.items()}))
    assert {name for name, row in traces.items() if f"/traces/{row.pk}/" in page} == names


def test_the_list_is_sorted_and_asks_the_same_for_more_rows(
    traces: dict[str, ProductionTrace], console: Client, agent: Agent
) -> None:
    page = html(console.get("/traces/?sort=worst"))
    assert page.count('aria-label="Thumbs up"') == 4 and page.count('aria-pressed="true"') == 1
    places = [page.index(str(traces[name].pk)) for name in ("failed", "disliked", "liked")]
    assert places == sorted(places)
    before = queries_of(console, "/traces/")
    for _ in range(15):
        answered(agent)
    assert queries_of(console, "/traces/") == before


def test_a_trace_shows_the_conversation_and_its_outcome(
    traces: dict[str, ProductionTrace], console: Client, agent: Agent
) -> None:
    page = html(console.get(f"/traces/{traces['liked'].pk}/"))
    for shown in ("When does it open?", "It comes tomorrow.", "release 1", "the new arm", "Thumbs up.", "s-1", "raw"):
        assert shown in page, shown
    assert "by <b>" not in page and "Say &lt;b&gt;hello" in html(console.get(f"/traces/{traces['plain'].pk}/"))
    assert "The model is away." in html(console.get(f"/traces/{traces['failed'].pk}/"))
    calls = [{"function": {"name": "look_up", "arguments": {"order": 4711}}}]
    called = answered(agent, response={"role": "assistant", "content": None, "tool_calls": calls})
    assert "look_up({&quot;order&quot;:4711})" in html(console.get(f"/traces/{called.pk}/"))
    tool = {"action": {"type": "tool", "tool": "sum", "parameters": {"text": "4+4"}}, "result": {"output": "eight"}}
    last = {"action": {"type": "answer", "tool": ""}, "result": {"output": "8"}}
    stepped = answered(agent, response={"role": "assistant", "content": "8", "agentcore_steps": [tool, last]})
    page = html(console.get(f"/traces/{stepped.pk}/"))
    assert "sum({&quot;text&quot;:&quot;4+4&quot;})" in page and page.index("eight") < page.index(
        '<div class="words">8<'
    )
    unrecorded = answered(agent, request={}, response={})
    assert "Conversation not stored" in html(console.get(f"/traces/{unrecorded.pk}/"))
    tools = answered(agent, "```python\nimport os\n```")
    ProductionTrace.objects.filter(pk=tools.pk).update(
        reward=0.1, components={"code_quality": {"off": "no namespaces"}}
    )
    assert "The code was not checked: no namespaces" in html(console.get(f"/traces/{tools.pk}/"))
    assert console.get(f"/traces/{tools.pk}/json/").json()["id"] == str(tools.pk)


def test_buttons_give_change_and_take_back(traces: dict[str, ProductionTrace], console: Client) -> None:
    trace = traces["plain"]
    path = f"/traces/{trace.pk}/feedback/"

    def pressed(**sent: str) -> list[tuple[str, float | None, str]]:
        assert console.post(path, sent).status_code == 302
        return list(Feedback.objects.filter(trace=trace).order_by("id").values_list("metric", "value", "text"))

    assert pressed(metric="thumbs", value="up") == [("thumbs", 1.0, "")]
    assert pressed(metric="thumbs", value="down") == [("thumbs", 0.0, "")]
    assert pressed(metric="thumbs", value="down") == []
    assert pressed(metric="stars", value="4") == [("stars", 4.0, "")]
    assert pressed(metric="stars", value="nine") == [("stars", 4.0, "")]
    assert pressed(metric="stars", value="4") == []
    assert pressed(metric="correction", text="It is green.") == [("correction", None, "It is green.")]
    assert ">It is green.</textarea>" in html(console.get(f"/traces/{trace.pk}/"))
    assert pressed(metric="correction", text=" ") == []
    part = console.post(path, {"metric": "thumbs", "value": "up"}, headers={"HX-Request": "true"})
    assert html(part).count('aria-pressed="true"') == 1 and "<html" not in html(part)


def test_a_viewer_reads_no_traces(traces: dict[str, ProductionTrace], stella: Any) -> None:
    client = Client()
    client.force_login(stella)
    for path in ("/traces/", f"/traces/{traces['plain'].pk}/"):
        refused = client.get(path)
        assert refused.status_code == 403 and "Say &lt;b&gt;hello" not in html(refused)


def test_an_empty_list_says_what_comes_there(console: Client) -> None:
    assert "No production traces yet" in html(console.get("/traces/"))


def test_rest_shows_one_whole(traces: dict[str, ProductionTrace], olivia: Any) -> None:
    body = Caller(olivia).get(f"traces/{traces['liked'].pk}").json()
    assert body["request"]["messages"][0]["content"] == "When does it open?" and body["agent"] == "clerk"
    assert body["components"]["measured"]["feedback"] is True and body["cost_usd"] == 0
    assert [one["metric"] for one in body["feedback"]] == ["thumbs"]
