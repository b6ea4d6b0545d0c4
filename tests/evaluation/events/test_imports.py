"""Files of other trainers become trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore_site.lib.errors import Conflict, Forbidden, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.events.imports.formats import imported
from evaluation.events.imports.services import BROKEN, trajectories_import
from experiences.models import Agent, TrajectoryRecord

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
ASKED = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "How warm is it in Bern?"}]
LIVED: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "12 degrees"},
    {"role": "assistant", "content": "It is 12 degrees."},
]
FLAT = {"id": "c1", "type": "function", "name": "weather", "arguments": '{"city": "Bern"}'}
TRACE = {
    "version": 1,
    "id": "0" * 31 + "1",
    "task": {"type": "Weather", "data": {"question": "?"}, "key": "bern"},
    "agent": {"config": {}, "name": "agent"},
    "nodes": [
        {"parent": number - 1 if number else None, "message": message, "sampled": message["role"] == "assistant"}
        for number, message in enumerate([*ASKED, {**LIVED[0], "tool_calls": [FLAT]}, *LIVED[1:]])
    ],
    "calls": [{"node": 2, "model": "small", "usage": {"prompt_tokens": 30, "completion_tokens": 12, "cost": 0.01}}],
    "rewards": {"right": {"score": 1.0, "weight": 0.5}, "judge": None},
    "timing": {"agent": {"start": 1_760_000_000.0, "end": 1_760_000_002.5}},
    "errors": [],
}
RESULT = {"example_id": 3, "task": "weather", "prompt": ASKED, "completion": LIVED, "reward": 0.5, "right": 1.0}
EPISODE = {
    "episode_id": "e-1",
    "messages": [*ASKED, *LIVED],
    "reward": 0.5,
    "done": True,
    "tool_trace": [{"tool_name": "weather", "arguments": {"city": "Bern"}, "result": "12 degrees"}],
    "metrics": {},
    "verify_metrics": {"right": 1.0},
    "artifacts": {},
    "task": "bern",
    "extra": {},
}
CHOICES = [
    {"finish_reason": "stop", "index": 0, "message": one} if one["role"] == "assistant" else one for one in LIVED
]
LINE = {
    "messages_and_choices": [*ASKED, *CHOICES],
    "reward": 0.5,
    "metrics": {"right": 1.0},
    "metadata": {},
    "logs": [],
}
GROUP = {"trajectories": [LINE, {**LINE, "reward": -1.0}], "metadata": {}}
FILES = {"verifiers": TRACE, "verifiers before": RESULT, "openenv": EPISODE, "art": LINE}


@pytest.mark.parametrize("line", FILES.values(), ids=FILES)
def test_each_format_yields_the_same_rollout(line: dict[str, Any]) -> None:
    (one,) = imported(line)
    result = one.made(7)
    assert (result.query, result.reward, result.success, result.key) == (
        "How warm is it in Bern?",
        0.5,
        True,
        (0, 7, 0),
    )
    first, second = result.steps
    assert first.action == {"type": "tool", "tool": "weather", "parameters": {"city": "Bern"}}
    assert first.result == {"success": True, "output": "12 degrees", "error": None}
    assert second.action["parameters"] == {"text": "It is 12 degrees."}
    assert result.components["right"] in (0.5, 1.0) and result.evidence["imported"]["system"] == "Be kind."


def test_a_trace_of_verifiers_keeps_its_cost_and_its_failure() -> None:
    (one,) = imported(TRACE)
    result = one.made(0)
    assert one.name == TRACE["id"] and (result.tokens, result.cost_micros, result.model) == (42, 10_000, "small")
    assert (result.started_at, result.duration_ms) == (1_760_000_000.0, 2_500.0)
    far = {"agent": {"start": 1e18, "end": 1e18}}
    for wrong in ({"timing": far}, {"calls": [{"usage": {"prompt_tokens": 2**40}}]}):
        (one,) = imported({**TRACE, **wrong})
        with pytest.raises(ValueError, match="out of their range"):
            one.made(0)
    (broken,) = imported({**TRACE, "errors": [{"type": "ToolError", "message": "no"}], "rewards": {}})
    assert broken.made(0).error == "agent: ToolError: no" and not broken.made(0).success


KEYS = sorted({*TRACE, *RESULT, *EPISODE, *LINE, "trajectories", "message", "parent", "role", "content"})
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JUNK, st.sampled_from(["", "verifiers", "openenv", "art"]))
def test_a_line_of_any_shape_is_taken_or_refused(line: Any, kind: str) -> None:
    try:
        for one in imported(line, kind):
            assert one.made(0).steps
    except BROKEN:
        pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = [json.dumps(one) for one in (TRACE, RESULT, GROUP)]
    made = tmp_path / "rollouts.jsonl"
    made.write_text("\n".join([lines[0], "{broken", "", *lines[1:], '{"what": 1}', lines[0]]))
    return made


@pytest.mark.django_db
def test_a_file_is_imported_once_and_its_wrong_lines_are_reported(
    agent: Agent, olivia: Any, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connection.cursor() as cursor:  # Django doesn't know the table, and doesn't empty it
        cursor.execute("TRUNCATE experiences_trajectory")
    for expected in ("4 new, 0 known, 2 refused", "0 new, 4 known, 2 refused"):
        call_command("import_trajectories", str(file), agent=agent.slug, user="olivia")
        output = capsys.readouterr()
        assert (
            output.out.strip() == expected and "line 2: " in output.err and "line 6: its kind is unknown" in output.err
        )
    rows = TrajectoryRecord.objects.filter(agent_id=agent.pk)
    assert sorted(rows.values_list("reward", flat=True)) == [-1.0, 0.5, 0.5, 0.5]
    with pytest.raises(CommandError, match="can't be read"):
        call_command("import_trajectories", "nothing.jsonl", agent=agent.slug, user="olivia")
    with pytest.raises(CommandError, match="no user 'ghost'"):
        call_command("import_trajectories", str(file), agent=agent.slug, user="ghost")


@pytest.mark.django_db
def test_only_who_may_record_imports(agent: Agent, stella: Any, charlie: Any, operator: Actor) -> None:
    for person, error in ((stella, Forbidden), (charlie, Missing)):
        with pytest.raises(error):
            trajectories_import(Actor(person), agent, [])
    agent.collects = False
    with pytest.raises(Conflict, match="may not be recorded"):
        trajectories_import(operator, agent, [])
