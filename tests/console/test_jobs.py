"""One job's page: what it says, what can be done, what is shared."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Job, ShareLink, Status
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent, GroupRecord
from tests.console.conftest import SignIn
from tests.support.pages import html
from tests.support.rows import queued_run
from training.models import PolicyCheckpoint, TrainingRun

pytestmark = pytest.mark.django_db


def text(client: Client, address: str) -> str:
    """The text of a page, without its markup."""
    shown = html(client.get(address))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", shown))


def test_page_shows_the_status_before_any_chart(console: Client, run: TrainingRun) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(
        verdict={
            "verdict": "Better than the untrained baseline by 18.2 points.",
            "success_rate": 0.682, "success_low": 0.6, "success_high": 0.75,
            "baseline_success_rate": 0.5, "improvement": 0.182, "low": 0.11, "high": 0.251, "p_value": 0.001,
        }
    )  # fmt: skip
    shown = text(console, f"/jobs/{run.pk}/")
    assert "Better than the untrained baseline by 18.2 points." in shown
    assert "50.0 % → 68.2 % 95 % interval 60.0 % to 75.0 %" in shown
    assert "Acceptance criteria" in shown and "all iterations ran" in shown
    assert shown.index("Better than") < shown.index("Learning curves")
    assert "verdict good" in html(console.get(f"/jobs/{run.pk}/"))


def test_a_gain_that_could_be_chance_is_not_coloured(console: Client, run: TrainingRun) -> None:
    seen = {"success_rate": 0.5, "low": 0.3, "high": 0.7, "baseline_success_rate": 0.4}
    seen |= {"improvement": 0.1, "improvement_low": -0.1, "improvement_high": 0.3}
    TrainingRun.objects.filter(pk=run.pk).update(selection=seen)
    shown = html(console.get(f"/jobs/{run.pk}/"))
    assert "verdict plain" in shown and "No proven difference" in shown


def test_the_loss_is_nowhere_shown_as_progress(console: Client, run: TrainingRun) -> None:
    shown = text(console, f"/jobs/{run.pk}/?tab=events").lower()
    assert " loss" not in shown
    points = console.get(f"/jobs/{run.pk}/series/").json()["iterations"]
    assert points and "loss" not in points[0]


def test_the_series_goes_on_after_what_the_page_has(console: Client, run: TrainingRun) -> None:
    whole = console.get(f"/jobs/{run.pk}/series/").json()["iterations"]
    rest = console.get(f"/jobs/{run.pk}/series/?after=1").json()["iterations"]
    assert [point["n"] for point in whole] == [1, 2] and rest == whole[1:]
    assert console.get(f"/jobs/{run.pk}/series/?after=nonsense").json()["iterations"] == whole


def test_groups_show_every_rollout_and_lead_to_them(console: Client, run: TrainingRun) -> None:
    shown = html(console.get(f"/jobs/{run.pk}/?tab=groups"))
    groups = GroupRecord.objects.filter(job_id=run.pk, iteration=1)
    for group in groups:
        assert f"/jobs/{run.pk}/groups/1/{group.scenario}/" in shown
    assert shown.count('class="dots"') == groups.count() == 3
    assert len(re.findall(r'class="dots".*?</svg>', shown)[0].split("<circle")) - 1 == 4


def test_a_group_without_signal_is_grey(console: Client, run: TrainingRun) -> None:
    GroupRecord.objects.filter(job_id=run.pk).update(has_signal=False)
    first = re.findall(r'class="dots".*?</svg>', html(console.get(f"/jobs/{run.pk}/?tab=groups")))[0]
    assert first.count("dot none") == 4
    assert "No learning signal" in text(console, f"/jobs/{run.pk}/groups/1/0/")


def test_pausing_and_resuming_a_queued_job(console: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    part = {"HX-Request": "true"}
    paused = html(console.post(f"/jobs/{run.pk}/pause/", headers=part))
    assert 'data-status="paused"' in paused and "Resume" in paused and "Everything is saved" in paused
    assert "<html" not in paused
    assert console.post(f"/jobs/{run.pk}/resume/")["Location"] == f"/jobs/{run.pk}/"
    assert Job.objects.get(id=run.pk).status == Status.QUEUED


def test_cancelling_asks_for_the_name(console: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    refused = console.post(f"/jobs/{run.pk}/cancel/", {"confirm": "something else"})
    assert refused.status_code == 400 and f"type the job&#x27;s name: {run.job.title}" in html(refused)
    shown = html(console.get(f"/jobs/{run.pk}/"))
    assert f'Type the job\'s name, <code class="nowrap">{run.job.title}</code>, to confirm' in shown
    assert Job.objects.get(id=run.pk).status == Status.QUEUED
    console.post(f"/jobs/{run.pk}/cancel/", {"confirm": f" {run.job.title} "})
    assert Job.objects.get(id=run.pk).status == Status.CANCELLED
    assert ">Cancel<" not in html(console.get(f"/jobs/{run.pk}/"))


def test_a_failed_job_says_why_and_what_can_be_done(console: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent)
    Job.objects.filter(id=run.pk).update(status="failed", status_reason="error", error="ValueError: broken data")
    shown = text(console, f"/jobs/{run.pk}/")
    assert "Failed: ValueError: broken data" in shown and "Resume" in shown and "Pause" not in shown


def test_settings_are_shown_as_what_differs_from_the_preset(console: Client, operator: Actor, agent: Agent) -> None:
    run = queued_run(operator, agent, config={"learning_rate": 0.007})
    shown = text(console, f"/jobs/{run.pk}/?tab=settings")
    before_all = shown[: shown.index("All settings")]
    assert "Learning rate" in before_all and "0.007" in before_all and "Gradient clip" not in before_all
    assert "Gradient clip" in shown


def test_events_leave_out_the_nudges_unless_asked(console: Client, run: TrainingRun) -> None:
    assert "Iteration 2." not in text(console, f"/jobs/{run.pk}/?tab=events")
    assert "Iteration 2." in text(console, f"/jobs/{run.pk}/?tab=events&events=all")


def test_an_unknown_tab_is_the_first_one(console: Client, run: TrainingRun) -> None:
    assert "Learning curves" in text(console, f"/jobs/{run.pk}/?tab=nonsense&upto=x&order=y")
    assert "Groups of rollouts" in text(console, f"/jobs/{run.pk}/?tab=groups&upto=x&order=y")


def test_the_page_opens_on_the_tab_that_its_address_names(console: Client, run: TrainingRun) -> None:
    curves = html(console.get(f"/jobs/{run.pk}/"))
    assert curves.index('id="head"') < curves.index('class="tabs"') < curves.index('id="charts"')
    for tab in ("groups", "trajectories", "failures", "checkpoints", "settings", "events"):
        shown = html(console.get(f"/jobs/{run.pk}/?tab={tab}"))
        assert 'id="charts"' not in shown, tab
        # Nothing is between the figures and the tabs.
        assert 'id="notes"' not in shown[: shown.index('class="tabs"')], tab


def test_before_the_first_iteration_one_empty_state_replaces_the_charts(
    console: Client, operator: Actor, agent: Agent
) -> None:
    shown = html(console.get(f"/jobs/{queued_run(operator, agent).pk}/"))
    assert shown.count("No iteration yet") == 1
    assert re.search(r'<div class="charts" data-points hidden>', shown)


# -- sharing -----------------------------------------------------------------------------------------------------------


def share(console: Client, run: TrainingRun) -> str:
    shown = html(console.post(f"/jobs/{run.pk}/share/", headers={"HX-Request": "true"}))
    match = re.search(r"http://testserver(/shared/[^\"]+/)", shown)
    assert match
    return match.group(1)


def test_a_shared_page_needs_no_account_and_leads_nowhere(console: Client, run: TrainingRun) -> None:
    link = share(console, run)
    response = Client().get(link)
    shown = html(response)
    assert response.status_code == 200
    assert (response["Referrer-Policy"], response["Cache-Control"]) == ("no-referrer", "no-store")
    assert "noindex" in response["X-Robots-Tag"]
    assert "<a " not in shown[shown.index("<main") :] and "<form" not in shown
    assert str(run.pk) not in shown
    assert set(Client().get(f"{link}series/").json()["iterations"][0]) == {
        "n", "trajectories", "cost_usd", "seconds", "success_rate",
    }  # fmt: skip
    assert "data-status" in html(Client().get(f"{link}status/"))


def test_a_shared_link_is_shown_once_and_can_be_revoked(console: Client, run: TrainingRun) -> None:
    link = share(console, run)
    assert link not in html(console.get(f"/jobs/{run.pk}/"))
    assert link.split("/")[2] not in str(ShareLink.objects.values().get())
    console.post(f"/jobs/{run.pk}/unshare/")
    for address in (link, f"{link}status/", f"{link}series/", "/shared/never/"):
        assert Client().get(address).status_code == 404
    assert list(
        AuditEvent.objects.filter(action__in=("job.shared", "job.unshared")).values_list("action", flat=True)
    ) == [
        "job.unshared",
        "job.shared",
    ]


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_are_tagged_downloaded_and_compared(console: Client, run: TrainingRun) -> None:
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    part = console.post(
        f"/checkpoints/{checkpoint.pk}/tags/", {"tags": "keep, best so far"}, headers={"HX-Request": "true"}
    )
    assert "best so far" in html(part)
    assert PolicyCheckpoint.objects.get(pk=checkpoint.pk).tags == ["best so far", "keep"]
    assert f"{checkpoint.label}" in text(console, "/checkpoints/?tag=keep")
    assert "No checkpoint matches" in text(console, "/checkpoints/?tag=other")

    response = console.get(f"/checkpoints/{checkpoint.pk}/download/")
    assert response.content == b"policy" and response["X-Checkpoint-Sha256"] == checkpoint.sha256
    assert f'filename="{checkpoint.label}.{checkpoint.sha256}.bin"' in response["Content-Disposition"]
    assert "the same bytes" in text(console, f"/checkpoints/compare/?pick={checkpoint.pk}&pick={checkpoint.pk}")
    assert console.get("/checkpoints/compare/").status_code == 400


def test_a_tag_that_is_too_long_is_refused(console: Client, run: TrainingRun) -> None:
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    assert console.post(f"/checkpoints/{checkpoint.pk}/tags/", {"tags": "x" * 41}).status_code == 400
    assert PolicyCheckpoint.objects.get(pk=checkpoint.pk).tags == []


def test_tags_do_not_lead_to_other_sites(console: Client, run: TrainingRun) -> None:
    checkpoint = PolicyCheckpoint.objects.get(run=run)
    form: dict[str, Any] = {"tags": "a", "next": "https://evil.example/"}
    assert console.post(f"/checkpoints/{checkpoint.pk}/tags/", form)["Location"] == "/checkpoints/"


def test_a_developer_sees_no_buttons_that_start_or_stop(
    dan: Any, signed_in: SignIn, operator: Actor, agent: Agent
) -> None:
    run = queued_run(operator, agent)
    shown = text(signed_in(dan), f"/jobs/{run.pk}/")
    assert "Pause" not in shown and "Cancel" not in shown and "Duplicate" not in shown


def test_a_job_without_an_evaluation_says_whether_one_is_to_come(
    console: Client, operator: Actor, agent: Agent
) -> None:
    run = queued_run(operator, agent)
    address = f"/jobs/{run.pk}/evaluations/"
    assert "When the job ends, its best checkpoint is compared" in text(console, address)
    Job.objects.filter(pk=run.pk).update(status=Status.CANCELLED)
    assert "The job ended without an evaluation on the held-out queries." in text(console, address)
    TrainingRun.objects.filter(pk=run.pk).update(verdict={"verdict": "Nothing was changed: it had <none>."})
    shown = text(console, address)
    assert "Nothing was changed: it had &lt;none&gt;." in shown and "When the job ends" not in shown
