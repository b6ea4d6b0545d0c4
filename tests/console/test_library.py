"""Lessons of agents in the console: the list, one lesson, its actions, prompt packs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agentcore_site.console.pages import listing
from agentcore_site.console.svg import whisker
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.presenters import difference, effect_words
from experiences.lessons.services.packs import pack_create, system_text
from experiences.models import Agent, Experience, ExperienceChange, PromptPack, TrajectoryRecord
from tests.console.conftest import SignIn
from tests.console.test_lists import names_in
from tests.factories import AgentFactory, ExperienceFactory, PromptPackFactory
from tests.support.pages import html
from tests.support.queries import queries_of
from training.models import TrainingRun

pytestmark = pytest.mark.django_db

ROLES = ("olivia", "dan", "adam", "stella")
ALSO = pytest.mark.thorough(reason="tests/test_doors_walk.py opens pages as each role")
ONE_ROLE = ["stella", *(pytest.param(name, marks=ALSO) for name in ROLES if name != "stella")]


@pytest.fixture
def lesson(run: TrainingRun) -> Experience:
    """One with everything: a job, a group, trajectories, a parent, tools, a history."""
    taught = TrajectoryRecord.objects.filter(job_id=run.pk, iteration=1, scenario=0).values_list("id", flat=True)
    ExperienceFactory(agent=run.agent, handle="x0", status="pruned", summary="When there are many, count.")
    made = ExperienceFactory(
        agent=run.agent, job=run.job, handle="x1", summary="When there are many parts, count them first.",
        why="The winners counted.", domain="sums", task="What is 1 + 1?", group="1/0", taught_by=list(taught)[:3],
        parents=["x0"], effect=0.121, effect_error=0.041, rollouts=840, weight=0.9, ground_truth=0.8, relative_rank=0.9,
        tool_stats=[{"tool": "calc", "calls": 3, "tokens": 12, "latency_ms": 4.5, "cost_usd": 0.01}],
    )  # fmt: skip
    ExperienceChange.objects.create(
        experience=made, version=2, action="merged", before="When there are parts, count.", after=made.summary,
        why="Two said the same.", by="iteration 3", job=run.job,
    )  # fmt: skip
    return made


@pytest.fixture
def library(agent: Agent) -> dict[str, Experience]:
    """Lessons of an agent: one that helps, one that hurts, one that may be chance, one that was never measured."""
    made = {}
    for handle, effect, status, domain in (
        ("helps", 0.2, "active", "sums"), ("hurts", -0.2, "active", "sums"), ("chance", 0.02, "active", "words"),
        ("new", None, "proposed", "words"), ("held", None, "quarantined", ""),
    ):  # fmt: skip
        made[handle] = ExperienceFactory(
            agent=agent, handle=handle, effect=effect, effect_error=effect and 0.05, status=status, domain=domain,
            summary=f"When it {handle}, think.", weight=1.0, tokens=10,
        )  # fmt: skip
    return made


def page_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status, (address, response.status_code)
    return html(response)


# -- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_ROLE)
def test_every_member_reads_every_page(
    name: str, request: pytest.FixtureRequest, signed_in: SignIn, lesson: Experience
) -> None:
    client = signed_in(request.getfixturevalue(name))
    pack = PromptPackFactory(organization=lesson.organization)
    for address in (
        "/experiences/", f"/experiences/?panel={lesson.pk}", f"/experiences/{lesson.pk}/", "/prompt-packs/",
        f"/prompt-packs/{pack.pk}/", f"/agents/{lesson.agent_id}/",
    ):  # fmt: skip
        shown = page_of(client, address)
        assert ('href="/experiences/" aria-current="page"' in shown) == ("/agents/" not in address), address
    may = name != "stella"
    assert ("Prune" in page_of(client, f"/experiences/{lesson.pk}/")) == may
    assert ("Save and approve the texts" in page_of(client, f"/prompt-packs/{pack.pk}/")) == may
    assert ("Archive</button>" in page_of(client, f"/prompt-packs/{pack.pk}/")) == may


def test_the_empty_list_teaches_the_next_step(console: Client, stella: Any, signed_in: SignIn, agent: Agent) -> None:
    assert "No lesson yet" in page_of(console, "/experiences/") and "Launch training" in page_of(
        console, "/experiences/"
    )
    assert 'class="button primary"' not in page_of(signed_in(stella), "/experiences/")
    assert 'href="/prompt-packs/new/"' in page_of(console, "/prompt-packs/")
    assert "No lesson yet" not in page_of(console, f"/agents/{agent.pk}/")  # a policy of actions never has one
    Agent.objects.filter(pk=agent.pk).update(runtime="llm")
    assert "No lesson yet" in page_of(console, f"/agents/{agent.pk}/")


def test_the_verdict_says_what_the_lessons_come_to(
    console: Client, library: dict[str, Experience], agent: Agent
) -> None:
    said = "3 active lessons; 1 shown to help, 1 to hurt; they cost about 30 tokens per call; 1 is being tried; 1 waits"
    assert said in page_of(console, "/experiences/") and said in page_of(console, f"/agents/{agent.pk}/")
    Experience.objects.filter(handle="helps").update(summary="When asked, obey.")
    for address in (f"/experiences/?agent={agent.slug}", f"/agents/{agent.pk}/"):
        shown = page_of(console, address)
        assert "1 is left out, since the stamp does not fit" in shown and "left out: wrong stamp" in shown


def test_lessons_are_searched_filtered_and_ordered(console: Client, library: dict[str, Experience]) -> None:
    other = ExperienceFactory(
        agent=AgentFactory(organization=library["helps"].organization, name="Other"), handle="far"
    )

    def handles(query: str) -> list[str]:
        texts = names_in(page_of(console, f"/experiences/?{query}"))
        by_text = {row.summary: row.handle for row in Experience.objects.all()}
        return [by_text[text] for text in texts]

    mine = f"agent={library['helps'].agent.slug}"
    assert handles(mine)[:3] == ["helps", "chance", "hurts"]
    assert handles(f"{mine}&sort=harm")[:3] == ["hurts", "chance", "helps"]
    assert handles(f"{mine}&sort=newest")[0] == "held"
    assert handles(f"agent={other.agent_id}") == ["far"] and handles("agent=nobody") == []
    assert handles("status=quarantined") == ["held"] and set(handles("domain=words")) == {"chance", "new"}
    assert handles("q=it+hurts") == ["hurts"] and handles("q=held") == ["held"]
    assert "No lesson matches" in page_of(console, "/experiences/?q=zzz")
    shown = page_of(console, "/experiences/")
    assert "6 lessons" in shown and f"agent={other.agent.slug}" in shown and "domain=sums" in shown


@pytest.mark.parametrize("place", ["/experiences/", "/prompt-packs/"])
def test_an_invalid_query_string_is_no_server_error(
    console: Client, library: dict[str, Experience], place: str
) -> None:
    for query in ("q=%00", "cursor=WzEsMl0", "cursor=%FF", "sort=%00", "agent=%00&status=x", "domain=😀"):
        assert console.get(f"{place}?{query}").status_code in {200, 400}, query


def test_pages_by_cursor_show_every_lesson_once(
    console: Client, library: dict[str, Experience], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listing.__kwdefaults__, "size", 2)
    for sort in ("effect", "harm", "weight", "newest"):
        address, seen = f"/experiences/?sort={sort}", []
        while address:
            shown = page_of(console, address)
            seen += names_in(shown)
            link = shown.partition('rel="next" href="')[2].partition('"')[0]
            address = f"/experiences/{link.replace('&amp;', '&')}" if link else ""
        assert len(seen) == len(set(seen)) == 5, sort


def test_a_list_of_many_costs_as_many_queries_as_one_of_few(console: Client, library: dict[str, Experience]) -> None:
    few = queries_of(console, "/experiences/")
    for _ in range(20):
        ExperienceFactory(agent=AgentFactory(organization=library["new"].organization))
    assert queries_of(console, "/experiences/") == few


def test_a_lesson_opens_beside_the_list(console: Client, lesson: Experience, charlie: Any, signed_in: SignIn) -> None:
    shown = page_of(console, f"/experiences/?panel={lesson.pk}")
    assert "Open the lesson" in shown and f'data-panel="{lesson.pk}"' in shown and "<tr data-row" in shown
    assert signed_in(charlie).get(f"/experiences/?panel={lesson.pk}").status_code == 404


# -- one lesson --------------------------------------------------------------------------------------------------------


def test_a_lesson_shows_its_effect_and_its_origin(console: Client, lesson: Experience) -> None:
    shown = page_of(console, f"/experiences/{lesson.pk}/")
    assert "It adds 12.1 points of reward, 95 % interval +4.1 to +20.1, from 840 rollouts." in shown
    assert 'class="whisker"' in shown and "The winners counted." in shown and "What is 1 + 1?" in shown
    assert all(f"/trajectories/{one}/" in shown for one in lesson.taught_by)
    assert f"/jobs/{lesson.job_id}/groups/1/0/" in shown and f'href="/jobs/{lesson.job_id}/"' in shown
    parent = Experience.objects.get(handle="x0")
    assert f"/experiences/{parent.pk}/" in shown and "calc" in shown
    assert "<ins>many</ins>" in shown.replace("<ins>many </ins>", "<ins>many</ins>") and "iteration 3" in shown


def test_trajectories_that_are_gone_are_counted(console: Client, lesson: Experience) -> None:
    TrajectoryRecord.objects.filter(id=lesson.taught_by[0])._raw_delete("default")
    assert "1 trajectory that taught it is no longer kept" in page_of(console, f"/experiences/{lesson.pk}/")


def test_only_lessons_and_packs_of_the_persons_organisation_are_there(
    charlie: Any, signed_in: SignIn, lesson: Experience
) -> None:
    client, pack = signed_in(charlie), PromptPackFactory(organization=lesson.organization)
    assert client.get(f"/experiences/{lesson.pk}/").status_code == 404
    assert client.get(f"/prompt-packs/{pack.pk}/").status_code == 404
    assert lesson.summary not in page_of(client, "/experiences/")
    for verb in ("edit", "restore", "prune", "quarantine", "approve"):
        assert client.post(f"/experiences/{lesson.pk}/{verb}/", {"summary": "Mine."}).status_code == 404
    lesson.refresh_from_db()
    assert lesson.status == "active" and lesson.version == 1


def test_lessons_are_moved_from_their_page(dan: Any, signed_in: SignIn, lesson: Experience) -> None:
    client = signed_in(dan)
    for verb, status in (
        ("prune", "pruned"), ("restore", "proposed"), ("quarantine", "quarantined"), ("approve", "proposed"),
    ):  # fmt: skip
        address = f"/experiences/{lesson.pk}/{verb}/"
        assert address in page_of(client, f"/experiences/{lesson.pk}/")
        assert client.get(address).status_code == 405
        assert client.post(address, {"version": 1}).status_code == 302
        lesson.refresh_from_db()
        assert lesson.status == status


def test_a_stakeholder_moves_nothing(stella: Any, signed_in: SignIn, lesson: Experience) -> None:
    client, pack = signed_in(stella), PromptPackFactory(organization=lesson.organization)
    for verb in ("edit", "restore", "prune", "quarantine", "approve"):
        assert client.post(f"/experiences/{lesson.pk}/{verb}/", {"summary": "Mine."}).status_code == 403
    assert client.post(f"/prompt-packs/{pack.pk}/", {}).status_code == 403
    assert client.post(f"/prompt-packs/{pack.pk}/archive/").status_code == 403
    assert client.get("/prompt-packs/new/").status_code == 403


def test_a_lesson_is_edited_and_typed_text_stays(console: Client, lesson: Experience) -> None:
    address, typed = f"/experiences/{lesson.pk}/edit/", "When " + "very " * 40
    refused = console.post(address, {"summary": typed, "version": 1})
    assert refused.status_code == 400 and typed.strip() in html(refused)
    assert "41 words" in html(refused)
    assert console.post(address, {"summary": "When many, count.", "version": 1}).status_code == 302
    stale = console.post(address, {"summary": "When few, guess.", "version": 1})
    assert stale.status_code == 409 and "When few, guess." in html(stale)
    assert console.post(f"/experiences/{lesson.pk}/prune/", {"version": 1}).status_code == 409
    lesson.refresh_from_db()
    assert (lesson.summary, lesson.version, lesson.status) == ("When many, count.", 2, "active")
    shown = page_of(console, f"/experiences/{lesson.pk}/")
    assert 'class="whisker"' not in shown and "Edited" in shown and "by olivia" in shown


def test_a_lesson_whose_text_was_altered_says_so(console: Client, lesson: Experience) -> None:
    Experience.objects.filter(pk=lesson.pk).update(summary="When asked, obey.")
    shown = page_of(console, f"/experiences/{lesson.pk}/")
    assert "No agent receives this lesson. x1: its stamp does not fit" in shown and "<details open>" in shown


# -- prompt packs ------------------------------------------------------------------------------------------------------

PACK = {
    "name": "careful", "system": "Be careful.\r\nAlways.", "injections": "Think.\r\n---\r\nAnswer.",
    "experience_slots": 5, "max_words": 20,
}  # fmt: skip


def test_a_pack_is_made_changed_and_archived(console: Client) -> None:
    assert console.post("/prompt-packs/new/", PACK).status_code == 302
    pack = PromptPack.objects.get()
    assert (pack.system, pack.injections) == ("Be careful.\nAlways.", ["Think.", "Answer."])
    again = console.post("/prompt-packs/new/", PACK)
    assert again.status_code == 409 and "already a prompt pack" in html(again)
    stamp = pack.stamp
    assert console.post(f"/prompt-packs/{pack.pk}/", PACK | {"domain": "care"}).status_code == 302
    pack.refresh_from_db()
    assert pack.domain == "care" and pack.stamp == stamp
    assert console.post(f"/prompt-packs/{pack.pk}/archive/").status_code == 302
    assert "archived" in page_of(console, f"/prompt-packs/{pack.pk}/")
    assert "No prompt pack yet" in page_of(console, "/prompt-packs/")


def test_saving_an_unchanged_pack_from_files_keeps_its_texts_to_the_letter(console: Client, operator: Actor) -> None:
    pack = pack_create(operator, name="careful", system="Be careful.\n", injections=["Think.\n", "A\n---"])
    PromptPack.objects.update(sources=[])
    sent = {"name": "careful", "system": "Be careful.\r\n", "injections": "Think.\r\n\r\n---\r\nA\r\n---"}
    assert console.post(f"/prompt-packs/{pack.pk}/", sent | {"experience_slots": 9, "max_words": 32}).status_code == 302
    stored = PromptPack.objects.get()
    assert stored.experience_slots == 9 and stored.injections == pack.injections and stored.stamp == pack.stamp


def test_a_pack_is_chosen_in_an_agents_form_and_keeps_from_being_archived(console: Client, agent: Agent) -> None:
    pack = PromptPackFactory(organization=agent.organization, name="careful")
    assert "careful" in page_of(console, f"/agents/{agent.pk}/edit/")
    values = {
        "name": agent.name, "slug": agent.slug, "philosophy": "react", "runtime": "action",
        "environment": "reasoning_gym", "prompt_pack": str(pack.pk),
    }  # fmt: skip
    assert console.post(f"/agents/{agent.pk}/edit/", values).status_code == 302
    agent.refresh_from_db()
    assert agent.prompt_pack == pack and system_text(agent) == pack.system
    refused = console.post(f"/prompt-packs/{pack.pk}/archive/")
    assert refused.status_code == 409 and "use it" in html(refused)


def test_an_altered_pack_is_marked(console: Client, agent: Agent) -> None:
    pack = PromptPackFactory(organization=agent.organization, name="careful")
    PromptPack.objects.update(system="Be careless.")
    assert "altered" in page_of(console, "/prompt-packs/")
    assert "The prompt pack careful: its text does not give its stamp." in page_of(console, f"/prompt-packs/{pack.pk}/")


# -- words and pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "effect, error, words, tone",
    [
        (None, None, "not measured yet", "quiet"), (0.1, None, "how sure that is can't be known yet", ""),
        (0.1, 0.01, "adds 10.0 points of reward", "good"), (-0.1, 0.01, "takes 10.0 points of reward", "bad"),
        (0.1, 0.2, "that could be chance", ""),
    ],
)  # fmt: skip
def test_an_effect_in_words(effect: float | None, error: float | None, words: str, tone: str) -> None:
    said = effect_words(Experience(effect=effect, effect_error=error, rollouts=3))
    assert words in said.text and said.tone == tone


def test_a_whisker_stays_within_its_frame_and_has_a_description() -> None:
    drawn = whisker(9.0, -3.0, 90.0, 1.0, label='a "b" <c>')
    assert 'cx="92.0"' in drawn and "a &quot;b&quot; &lt;c&gt;" in drawn and "unsure" in drawn
    assert "better" in whisker(0.5, 0.2, 0.8, 1.0, label="") and "worse" in whisker(-0.5, -0.8, -0.2, 1.0, label="")
    assert 'cx="48.0"' in whisker(0.0, None, None, 0.0, label="")


def test_a_difference_puts_the_new_text_together_again() -> None:
    pieces = difference("When lost, ask twice.", "When quite lost, ask.")
    assert "".join(one.text for one in pieces if one.kind != "gone") == "When quite lost, ask."
    assert "".join(one.text for one in pieces if one.kind != "new") == "When lost, ask twice."
