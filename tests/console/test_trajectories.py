"""Trajectories: the viewer (also of a very long one), groups side by side, evaluation reports."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.test import Client

from evaluation.models import EvaluationRun
from evaluation.presenters.charts import metric_rows, metrics_forest
from experiences.models import Annotation, DatasetRow, TrajectoryRecord
from experiences.rollouts.types import RolloutKey, Step, Trajectory
from experiences.trajectories.presenters.comparison import parting
from experiences.trajectories.presenters.shape_of_steps import DEEPEST, tree, waterfall
from experiences.trajectories.step_window import steps_between
from experiences.trajectories.storage import trajectories_write
from tests.factories import ExperienceFactory
from tests.support.pages import html
from tests.support.rows import owner_of, trajectory
from training.models import TrainingRun

pytestmark = pytest.mark.django_db


def text(response: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def first(run: TrainingRun) -> TrajectoryRecord:
    rows = TrajectoryRecord.objects.filter(job_id=run.pk, iteration=1, scenario=0).order_by("rollout").first()
    assert rows is not None
    return rows


def long_one(run: TrainingRun, n: int) -> TrajectoryRecord:
    steps = [
        Step(
            {"observation": f"page {i}", "done": []},
            {"type": "tool", "tool": "read", "parameters": {"page": i}},
            {"success": True, "output": f"the text of page {i} " * 8, "error": ""},
            duration_ms=1.0,
        )
        for i in range(n)
    ]
    trajectories_write(
        owner_of(run), [Trajectory(RolloutKey(9, 0, 0), "Read it all.", steps, success=True, reward=1.0)]
    )
    return TrajectoryRecord.objects.defer("steps").get(job_id=run.pk, iteration=9)


def test_the_viewer_shows_what_the_agent_saw_did_and_got_back(console: Client, run: TrainingRun) -> None:
    shown = text(console.get(f"/trajectories/{first(run).pk}/"))
    assert "rollout 1 of 4" in shown and "succeeded" in shown
    assert "reward +1.10" in shown.lower() or "Reward +1.10" in shown
    assert "int_calc" in shown and "observation 4" in shown and "result 4" in shown
    assert "advantage +1.00" in shown and "probability 50 %" in shown


def test_siblings_are_walked_in_order(console: Client, run: TrainingRun) -> None:
    seen, address = [], f"/trajectories/{first(run).pk}/"
    while address:
        shown = html(console.get(address))
        seen.append(address)
        link = re.search(r'data-following href="([^"]+)"', shown)
        address = link.group(1) if link else ""
    assert len(set(seen)) == 4
    assert f'data-previous href="{seen[-2]}"' in shown


def test_thirty_thousand_steps_open_in_a_second(console: Client, run: TrainingRun) -> None:
    row = long_one(run, 30_000)
    console.get(f"/trajectories/{first(run).pk}/")  # templates are compiled once
    began = time.perf_counter()
    response = console.get(f"/trajectories/{row.pk}/")
    seconds = time.perf_counter() - began
    shown = html(response)
    assert shown.count('class="step ') == 100 and "page 99" in shown and "page 100 " not in shown
    assert f"/trajectories/{row.pk}/steps/?step=101" in shown
    assert seconds < 1.0, f"{seconds:.2f} s"
    middle = html(console.get(f"/trajectories/{row.pk}/?step=15001"))
    assert 'id="step-15001"' in middle and "page 15000" in middle
    end = html(console.get(f"/trajectories/{row.pk}/steps/?step=29951"))
    assert end.count('class="step ') == 50 and "hx-get" not in end


def test_a_window_of_steps_is_exact(run: TrainingRun) -> None:
    row = long_one(run, 250)
    assert [step["action"]["parameters"]["page"] for step in steps_between(row, 100, 102)] == [100, 101, 102]
    assert len(steps_between(row, 200, 299)) == 50
    assert steps_between(row, 250, 299) == [] and steps_between(row, 5, 4) == []


@pytest.mark.parametrize("step", ["0", "-3", "999999", "x"])
def test_a_step_that_is_not_there_shows_the_nearest(console: Client, run: TrainingRun, step: str) -> None:
    assert html(console.get(f"/trajectories/{first(run).pk}/?step={step}")).count('class="step ') >= 1


def test_the_raw_trajectory_is_whole(console: Client, run: TrainingRun) -> None:
    raw = console.get(f"/trajectories/{first(run).pk}/json/").json()
    assert raw["job_id"] == str(run.pk) and raw["rollout"] == 0 and len(raw["steps"]) == 2
    assert raw["steps"][0]["action"]["tool"] == "int_calc"


def test_text_of_an_agent_is_never_markup(console: Client, run: TrainingRun) -> None:
    evil = "<script>alert(1)</script><b onmouseover=alert(1)>"
    step = Step({"observation": evil, "done": []}, {"type": evil, "tool": evil, "parameters": {"a": evil}},
                {"success": False, "output": "", "error": evil * 40})  # fmt: skip
    trajectories_write(
        owner_of(run), [Trajectory(RolloutKey(8, 0, 0), evil, [step], error=f"policy: {evil}", evidence={"a": evil})]
    )
    row = TrajectoryRecord.objects.get(job_id=run.pk, iteration=8)
    for address in (f"/trajectories/{row.pk}/", f"/jobs/{run.pk}/groups/8/0/", "/trajectories/"):
        shown = html(console.get(address))
        assert "<script>alert" not in shown and "<b onmouseover" not in shown, address


def test_a_group_marks_where_each_parts_from_the_best(console: Client, run: TrainingRun) -> None:
    response = console.get(f"/jobs/{run.pk}/groups/1/0/")
    columns, shown = response.context["columns"], text(response)
    assert [column.best for column in columns] == [True, False, False, False]
    # The answer itself succeeded or failed: that is where the losers part.
    assert [column.parts_at for column in columns] == [None, None, 1, 1]
    assert shown.count("best") >= 1 and "advantage +1.00" in shown and "advantage −1.00" in shown


def test_parting_is_the_first_difference() -> None:
    assert parting(["a", "b"], ["a", "b"]) is None
    assert parting(["a", "b"], ["a", "c"]) == 1
    assert parting(["a"], ["a", "b"]) == 1
    assert parting([], ["a"]) == 0


def test_a_group_that_is_not_there_is_a_404(console: Client, run: TrainingRun) -> None:
    assert console.get(f"/jobs/{run.pk}/groups/99/0/").status_code == 404


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_gives_the_verdict_every_metric_and_the_queries_that_changed(
    console: Client, evaluation: EvaluationRun
) -> None:
    response = console.get(f"/evaluations/{evaluation.pk}/")
    shown = text(response)
    assert evaluation.report["verdict"].replace("\u00a0", " ") in shown.replace("&lt;", "<")
    for metric in ("Success rate", "Reward", "Steps", "Tool accuracy", "Cost per rollout", "Latency per rollout"):
        assert metric in shown
    assert "+80.0" in shown and "Changed queries: 8 of 10" in shown and "sign-flip permutation" in shown
    links = re.findall(r'href="(/trajectories/compare/[^"]+)"', html(response))
    assert len(links) == 8
    beside = text(console.get(links[0].replace("&amp;", "&")))
    assert "Baseline, sample 1" in beside and "Trained, sample 1" in beside


def test_an_unclear_difference_has_no_colour_and_says_that_data_are_few(evaluation: EvaluationRun) -> None:
    line = evaluation.report["lines"]["held_out"]
    values = {"improvement": 0.01, "p_value": 0.6, "p_adjusted": 0.6, "enough_data": False}
    unclear = {**line, "metrics": {**line["metrics"], "success_rate": {**line["metrics"]["success_rate"], **values}}}
    tones = {row["metric"].key: row["tone"] for row in metric_rows(unclear)}
    assert tones["success_rate"] == "plain"
    assert {row["metric"].key: row["tone"] for row in metric_rows(line)}["success_rate"] == "good"


def test_fewer_steps_are_on_the_better_side(evaluation: EvaluationRun) -> None:
    drawn = metrics_forest("held_out", evaluation.report["lines"]["held_out"])
    assert re.search(r"Steps</text>.*?forest-mark better", drawn)
    assert drawn.count("forest-mark") == 6


def test_repeated_uses_of_the_held_out_set_are_warned_of(console: Client, evaluation: EvaluationRun) -> None:
    assert "have been used in" not in text(console.get(f"/evaluations/{evaluation.pk}/"))
    EvaluationRun.objects.filter(pk=evaluation.pk).update(report={**evaluation.report, "looks": 3})
    assert "have been used in 3 evaluations" in text(console.get(f"/evaluations/{evaluation.pk}/"))


def test_the_json_is_the_whole_report(console: Client, evaluation: EvaluationRun) -> None:
    body = console.get(f"/evaluations/{evaluation.pk}/json/").json()
    assert body["report"] == evaluation.report and body["evaluation_id"] == str(evaluation.pk)


def test_an_evaluation_is_asked_for_and_watched(console: Client, run: TrainingRun) -> None:
    started = console.post("/evaluations/start/", {"run": run.pk, "split": "selection"})
    made = EvaluationRun.objects.get()
    assert started["Location"] == f"/evaluations/{made.pk}/"
    part = html(console.get(f"/evaluations/{made.pk}/?part=progress"))
    assert "Waiting for a worker" in part and "every 2s" in part and "<html" not in part
    console.post(f"/evaluations/{made.pk}/cancel/")
    stopped = html(console.get(f"/evaluations/{made.pk}/"))
    assert "There is no report" in stopped and "every 2s" not in stopped
    assert console.post("/evaluations/start/", {"run": run.pk, "split": "train"}).status_code == 400


# -- annotations, and the search inside of steps -----------------------------------------------------------------------


def test_a_person_annotates_on_the_page_and_finds_the_annotation_again(console: Client, run: TrainingRun) -> None:
    one = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert one is not None
    refused = console.post(f"/trajectories/{one.pk}/annotate/", {"label": ""})
    assert refused.status_code == 400 and "Give a comment" in html(refused)
    assert (
        console.post(f"/trajectories/{one.pk}/annotate/", {"step": "2", "label": "late", "score": "0.5"}).status_code
        == 302
    )
    shown = html(console.get(f"/trajectories/{one.pk}/"))
    assert "late" in shown and "step 2" in shown and "score 0.5" in shown and "olivia" in shown
    for query in ("label=late", "annotated=true", "min_score=0.4&max_score=0.6"):
        page = html(console.get(f"/trajectories/?{query}"))
        assert f"/trajectories/{one.pk}/" in page and "1 trajectory" in page, query
    assert "No trajectory matches" in html(console.get("/trajectories/?label=early"))


def test_only_the_author_is_offered_a_change(dan: Any, console: Client, signed_in: Any, run: TrainingRun) -> None:
    one = TrajectoryRecord.objects.filter(job_id=run.pk).first()
    assert one is not None
    console.post(f"/trajectories/{one.pk}/annotate/", {"comment": "Look here."})
    note = Annotation.objects.get()
    page = f"/trajectories/{one.pk}/"
    assert f"/annotations/{note.pk}/remove/" in html(console.get(page))
    assert f"/annotations/{note.pk}/remove/" not in html(signed_in(dan).get(page))
    assert signed_in(dan).post(f"/annotations/{note.pk}/remove/").status_code == 403
    assert console.post(f"/annotations/{note.pk}/", {"comment": "Look there."}).status_code == 302
    assert "Look there." in html(console.get(page))
    assert console.post(f"/annotations/{note.pk}/remove/").status_code == 302
    assert not Annotation.objects.exists()


def test_a_trajectory_becomes_a_row_of_a_dataset(console: Client, run: TrainingRun) -> None:
    one = TrajectoryRecord.objects.filter(job_id=run.pk, success=False).first()
    assert one is not None
    page = f"/datasets/annotated/?trajectory={one.pk}"
    assert "enter the answer here" in html(console.get(page))
    assert console.post(page, {"name": "sums"}).status_code == 400
    made = console.post(page, {"name": "sums", "answer": "42"}, follow=True)
    assert "Taken from annotated trajectories" in html(made)
    assert DatasetRow.objects.get(dataset__name="sums").expected_outcome == {"answer": "42"}


def test_the_list_is_searched_inside_of_steps(console: Client, run: TrainingRun) -> None:
    assert "No trajectory matches" in html(console.get("/trajectories/?words=gazetteer"))
    shown = html(console.get(f"/jobs/{run.pk}/?tab=trajectories&tool=int_calc"))
    assert "Tool used: int_calc" in shown and "24 trajectories" in shown
    assert "archived is not searched" in shown


# -- the context of an agent, and the shapes of its steps --------------------------------------------------------------


def prompted(run: TrainingRun, **changes: Any) -> TrajectoryRecord:
    """A model that asked two tools in one answer, then one in vain four times, then answered."""
    prompt = [{"role": "system", "content": "You guide travellers."}, {"role": "user"}]
    began = 1_760_000_000.0

    def step(n: int, tool: str, *, tokens: int = 0, error: str = "", **state: Any) -> Step:
        action = {"type": "tool", "tool": tool, "parameters": {"n": n}}
        result = {"success": not error, "output": "x", "error": error}
        return Step({"observation": "where?", **state}, action, result, timestamp=began + n, duration_ms=500.0,
                    tokens=tokens, cost_micros=10 * tokens)  # fmt: skip

    steps = [step(0, "map", tokens=50, prompt=prompt), step(1, "clock")]
    steps += [step(2 + n, "ferry", tokens=9, error="closed") for n in range(4)]
    last = {"type": "answer", "tool": None, "parameters": {"text": "Pemba"}}
    steps.append(Step({}, last, {"success": False}, timestamp=began + 7, duration_ms=250.0, tokens=5))
    one = Trajectory(
        RolloutKey(9, 0, 0), "Where is the reef?", steps, evidence={"expected": "Mafia"}, duration_ms=7_250.0
    )
    trajectories_write(owner_of(run), [one])
    return TrajectoryRecord.objects.get(job_id=run.pk, iteration=9)


def test_viewer_begins_with_the_models_input_and_ends_with_a_sentence(console: Client, run: TrainingRun) -> None:
    lesson = ExperienceFactory(agent=run.agent, summary="You guide travellers.")
    response = console.get(f"/trajectories/{prompted(run).pk}/")
    shown = html(response)
    assert "Where is the reef?</h1>" in shown.replace("\n", "")
    assert "Expected “Mafia”; the answer was “Pemba”." in text(response)
    assert shown.index("Initial prompt") < shown.index('id="step-1"')
    assert [(one.role, one.content) for one in response.context["prompt"]] == [
        ("system", "You guide travellers."), ("user", "where?"),
    ]  # fmt: skip
    assert f"/experiences/{lesson.pk}/" in shown


def test_a_tool_that_fails_the_same_way_is_one_block(console: Client, run: TrainingRun) -> None:
    response = console.get(f"/trajectories/{prompted(run).pk}/")
    assert "4 times ferry failed: closed steps 3 to 6" in text(response)
    assert html(response).count('class="step ') == 7  # each of them is in it


def test_the_tree_nests_the_calls_of_one_answer(console: Client, run: TrainingRun) -> None:
    response = console.get(f"/trajectories/{prompted(run).pk}/?view=tree")
    nodes = response.context["tree"]
    assert [len(node.under) for node in nodes] == [1, 0, 0, 0, 0, 0]
    assert (nodes[0].duration_ms, nodes[0].tokens, nodes[0].cost_micros) == (1000.0, 50, 500)
    assert "2 calls of one answer" in text(response) and "<details" in html(response)


def nested(run: TrainingRun) -> TrajectoryRecord:
    """A tool that asks another model, which uses two tools of its own; how each call was asked."""
    began = 1_760_000_000.0

    def step(n: int, tool: str, took: float, *, tokens: int = 0, parent: int | None = None, **call: Any) -> Step:
        action = {"type": "tool", "tool": tool, "parameters": {}}
        return Step({"prompt": [{"role": "user"}], "observation": "go"}, action, {"success": True, "output": "x"},
                    timestamp=began + n, duration_ms=took, tokens=tokens, parent=parent, call=call)  # fmt: skip

    steps = [step(0, "delegate", 9_000.0, tokens=50, temperature=0.7, max_tokens=512)]
    steps += [step(1, "map", 500.0, tokens=9, parent=0, finish="length"), step(2, "clock", 500.0, parent=0)]
    steps += [step(3, "sundial", 100.0, parent=2), step(10, "ferry", 500.0, tokens=5, temperature=0.0)]
    trajectories_write(owner_of(run), [Trajectory(RolloutKey(12, 0, 0), "Where to?", steps, duration_ms=11_000.0)])
    return TrajectoryRecord.objects.get(job_id=run.pk, iteration=12)


def test_steps_within_a_step_are_shown_within_that_step(console: Client, run: TrainingRun) -> None:
    row = nested(run)
    first, last = console.get(f"/trajectories/{row.pk}/?view=tree").context["tree"]
    [inner] = first.within  # the two calls of one answer
    assert [call.step["action"]["tool"] for call in inner.calls] == ["map", "clock"]
    assert [one.step["action"]["tool"] for one in inner.calls[1].within] == ["sundial"] and not last.within
    shown = html(console.get(f"/trajectories/{row.pk}/?view=tree"))
    assert "within 1" in shown and "within 3" in shown and shown.count('class="node leaf') == 5
    response = console.get(f"/trajectories/{row.pk}/?view=waterfall")
    bars = response.context["waterfall"].bars
    assert [(bar.step["number"], bar.depth, bar.starts) for bar in bars] == [
        (1, 0, 0), (2, 1, 1000), (3, 2, 2000), (4, 3, 3000), (5, 0, 10_000),
    ]  # fmt: skip
    assert "deep deep-3" in html(response)


def test_a_window_without_the_step_that_holds_them_shows_steps_at_its_edge() -> None:
    step = {"action": {"type": "tool"}, "result": {"success": True}}
    deep = [{**step, "number": n, "parent": n - 2} for n in range(40, 100)]
    [top] = tree(deep)
    depths, below = 0, top
    while below.within:
        depths, below = depths + 1, below.within[0]
    assert top.step["number"] == 40 and depths == DEEPEST
    assert len(waterfall([{**one, "timestamp": 1.0, "duration_ms": 1.0} for one in deep]).bars) == 60


def test_the_page_says_how_the_model_was_asked_and_which_step_was_asked_otherwise(
    console: Client, run: TrainingRun
) -> None:
    response = console.get(f"/trajectories/{nested(run).pk}/")
    assert "Request settings: temperature 0.7, max_tokens 512" in text(response)
    assert [one["differs"] for one in response.context["steps"]] == [
        {}, {"finish": "length"}, {}, {}, {"temperature": 0.0},
    ]  # fmt: skip
    assert "finish length" in text(response) and "temperature 0.0" in text(response)
    assert "were not stored" in text(console.get(f"/trajectories/{prompted(run).pk}/"))


def test_the_waterfall_draws_and_sums_the_known_durations(console: Client, run: TrainingRun) -> None:
    row = prompted(run)
    response = console.get(f"/trajectories/{row.pk}/?view=waterfall")
    shown, fall = html(response), response.context["waterfall"]
    assert shown.count('class="span-bar"') == 7 and fall.length == 7_250.0
    assert [bar.starts for bar in fall.bars] == [0, 1000, 2000, 3000, 4000, 5000, 7000]
    assert "The whole trajectory, 7 steps" in text(response) and "7.2 s" in text(response)
    assert shown.count('class="failed"') == 4
    timeless = trajectory(10, 0, 0, "when?", True)
    for step in timeless.steps:
        step.timestamp = step.duration_ms = 0.0
    trajectories_write(owner_of(run), [timeless])
    other = TrajectoryRecord.objects.get(job_id=run.pk, iteration=10)
    shown = html(console.get(f"/trajectories/{other.pk}/?view=waterfall"))
    assert "No times recorded" in shown and "span-bar" not in shown


def test_steps_that_are_shorter_than_the_clock_of_their_beginnings_are_one_behind_the_other() -> None:
    def step(began_ms: float, took_ms: float) -> dict[str, Any]:
        return {"timestamp": 1_700_000_000 + began_ms / 1e3, "duration_ms": took_ms, "action": {"type": "tool"}}

    quick = waterfall([step(0, 0.5), step(0, 0.25), step(1, 0.25), step(5, 1)])
    assert [bar.starts for bar in quick.bars] == pytest.approx([0, 0.5, 1, 5], abs=1e-3)
    at_once = waterfall([step(0, 200), step(0, 100)])  # two tools that ran beside each other
    assert [bar.starts for bar in at_once.bars] == [0, 0] and at_once.length == 200


def test_the_waterfall_of_a_quick_rollout_is_as_long_as_the_rollout_and_says_what_lies_between() -> None:
    """Three steps of 12 µs in 0.15 ms: the bars were drawn over 36 µs, beside a total of 0.15 ms."""
    quick = {"timestamp": 1_700_000_000, "duration_ms": 0.012, "action": {"type": "tool"}}
    drawn = waterfall([dict(quick) for _ in range(3)], whole_ms=0.15)
    assert drawn.length == 0.15 and drawn.ticks[-1] == 0.15 and drawn.between == pytest.approx(0.15 - 0.036)
    assert [bar.starts for bar in drawn.bars] == pytest.approx([0, 0.012, 0.024])
    alone = waterfall([dict(quick) for _ in range(3)])
    assert alone.length == pytest.approx(0.036) and alone.between == pytest.approx(0)
    beside = waterfall([quick | {"duration_ms": 200}, quick | {"duration_ms": 100}], whole_ms=250)
    assert beside.between == 50  # two at once are work once


def test_the_page_of_a_quick_rollout_says_what_has_no_bar(console: Client, run: TrainingRun) -> None:
    rollout = trajectory(11, 0, 0, "quick?", True)
    for step in rollout.steps:
        step.timestamp, step.duration_ms = rollout.steps[0].timestamp, 0.012
    rollout.duration_ms = 0.15
    trajectories_write(owner_of(run), [rollout])
    row = TrajectoryRecord.objects.get(job_id=run.pk, iteration=11)
    shown = html(console.get(f"/trajectories/{row.pk}/?view=waterfall"))
    assert "of 0.15 ms passed between the steps" in shown and "<span>0.15 ms</span>" in shown


def test_rollouts_of_one_step_part_by_what_they_answered(console: Client, run: TrainingRun) -> None:
    def answering(rollout: int, words: str, reward: float, output: Any = None) -> Trajectory:
        action = {"type": "answer", "tool": None, "parameters": {"text": words}}
        step = Step({}, action, {"success": True, "output": output}, duration_ms=1.0)
        return Trajectory(RolloutKey(11, 0, rollout), "q", [step], success=reward > 0, reward=reward)

    trajectories_write(owner_of(run), [answering(0, "no", 0.0), answering(1, "yes", 1.0), answering(2, "yes", 0.9)])
    response = console.get(f"/jobs/{run.pk}/groups/11/0/")
    columns = response.context["columns"]
    assert [column.row.rollout for column in columns] == [1, 0, 2] and columns[0].best
    assert [column.parts_at for column in columns] == [None, 0, None] and response.context["parting"] == 1
    assert "The rollouts diverge at step 1" in text(response)
    # What they part by is shown, also where the same came of it.
    trajectories_write(owner_of(run), [answering(3, "So it is <7>.", 0.8, 7), answering(4, "Seven, thus.", 0.7, 0)])
    table = html(console.get(f"/jobs/{run.pk}/groups/11/0/")).split("<tbody>")[1]
    assert re.findall(r'class="said small"[^>]*>([^<]*)<', table) == [
        "yes", "no", "yes", "So it is &lt;7&gt;.", "Seven, thus.",
    ]  # fmt: skip
    assert re.findall(r'class="came"[^>]*>([^<]*)<', table) == ["7", "0"]
