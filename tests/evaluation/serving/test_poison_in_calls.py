"""Calls with what no database takes: refused at the door, and never in the way of other traces."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.db import DataError, connection
from hypothesis import given
from hypothesis import strategies as st

from agentcore_site.lib.storable import storable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.services import api_key_create
from evaluation.serving.gateway.calls import RECOVER_SECONDS
from evaluation.serving.gateway.chat_answers import ChatInterface
from evaluation.serving.gateway.key_limits import KeyHolds, calls_ended
from evaluation.serving.gateway.responses import ResponsesInterface
from evaluation.serving.models import ProductionTrace, TraceStatus
from evaluation.serving.tasks import journals
from evaluation.serving.traces import writing
from evaluation.serving.traces.journal import ASIDE, Journal
from evaluation.serving.traces.recovery import recover
from evaluation.serving.traces.writing import PendingTrace, TraceWriter
from experiences.rollouts.runtimes import chat_body
from experiences.rollouts.runtimes.chat_body import BadCall

TEXTS = st.text(st.characters(codec=None, categories=None) | st.sampled_from("\x00\ud800\udfff\ufffe"), max_size=8)
LEAVES = (
    st.none() | st.booleans() | st.floats() | TEXTS | st.integers() | st.sampled_from([2**64, -(2**63) - 1, 10**400])
)
VALUES = st.recursive(LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXTS, part, max_size=3))


@pytest.mark.django_db
@given(VALUES)
def test_postgresql_takes_each_value_that_was_made_storable(value: Any) -> None:
    mended = storable(value)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [orjson.dumps(mended).decode()])
    assert storable(mended) is mended


def test_depth_and_values_that_can_be_stored() -> None:
    deep: Any = "x"
    for _ in range(1_000):
        deep = [deep]
    assert b"\xe2\x80\xa6" in orjson.dumps(storable(deep))
    fine = {"a": ["\\u0000 in words", 2**63 - 1, 0.5, None, {"b": "ü"}]}
    assert storable(fine) == fine
    assert storable("a\x00b\ud83dc") == "a\ufffdb\ufffdc"


BODIES: dict[str, Any] = {
    "NUL in a message": {"messages": [{"role": "user", "content": "a\x00"}]},
    "NUL in metadata": {"metadata": {"a": "\x00"}},
    "NUL in the model": {"model": "small\x00"},
    "more than 64 bits": {"seed": 2**70},
    "more than 64 bits in a tool": {"tools": [{"type": "function", "function": {"name": "f", "x": 2**70}}]},
    "no finite number": {"temperature": "TEMPERATURE"},
    "a role that is a list": {"messages": [{"role": ["user"], "content": "?"}]},
    "a part whose type is a list": {"messages": [{"role": "user", "content": [{"type": ["text"], "text": "?"}]}]},
    "depth": {"stop": [[[[[json.loads("[" * 200 + "]" * 200)]]]]]},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_call_that_could_not_be_stored_is_refused(name: str) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "?"}]} | BODIES[name]
    with pytest.raises(BadCall) as refused:
        ChatInterface(json.dumps(body).replace('"TEMPERATURE"', "1e400").encode())
    assert refused.value.status == 400


@pytest.mark.parametrize("interface", [ChatInterface, ResponsesInterface])
def test_a_call_of_very_many_values_is_refused_before_the_body_is_parsed(
    interface: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_body, "MOST_VALUES", 1_000)
    with pytest.raises(BadCall, match="more than 1,000 values"):
        interface(orjson.dumps({"model": "m", "messages": [{}] * 1_000, "input": "Hello"}))


@pytest.mark.parametrize("more", [{"text": {"format": {"type": ["text"]}}}, {"input": "a\x00"}, {"seed": 2**70}])
def test_a_response_that_could_not_be_stored_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(BadCall):
        ResponsesInterface(json.dumps({"model": "small", "input": "?"} | more).encode())


def row(organization: Organization, **more: Any) -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "organization_id": str(organization.pk),
        "agent_id": None, "release_id": None, "deployment_id": None, "key_id": None, "share": None, "safety": None,
        "arm": "", "session": "", "model": "small", "status": TraceStatus.OK, "cost_micros": 7,
        "created_at": datetime.now(UTC).isoformat(), "request": {"messages": ["?"]}, "response": {"content": "!"},
    } | more  # fmt: skip


def killed(folder: Path, *rows: dict[str, Any]) -> None:
    """The journal of a process that was killed after these answers."""
    journal = Journal(folder)
    for one in rows:
        journal.begin({"t": "call", "row": one})
        journal.note({"t": "answer", "row": one})
    segment = journal._segment
    assert segment is not None
    os.close(segment.file)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that takes no trace with the word POISON, and none of the model POISON at all."""
    write = writing.traces_write

    def refuse(rows: Any) -> None:
        if any("POISON" in json.dumps(one) for one in rows):
            raise DataError("unsupported Unicode escape sequence")
        write(rows)

    monkeypatch.setattr(writing, "traces_write", refuse)


@pytest.mark.django_db(transaction=True)
def test_a_journal_with_poison_is_recovered_whole(acme: Organization, tmp_path: Path) -> None:
    killed(tmp_path, row(acme), row(acme, response={"content": "a\x00b"}, metadata={"\x00": "x"}))
    assert recover(tmp_path, calls_ended) == 2 and ProductionTrace.objects.count() == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.django_db(transaction=True)
def test_a_worker_finishes_journals_without_a_call(acme: Organization, tmp_path: Path, settings: Any) -> None:
    settings.GATEWAY_JOURNAL = str(tmp_path)
    killed(tmp_path, row(acme), row(acme))
    assert journals() == 2 and ProductionTrace.objects.count() == 2
    assert not list(tmp_path.iterdir())
    assert max(RECOVER_SECONDS, settings.CELERY_BEAT_SCHEDULE["serving.journals"]["schedule"]) < 5


@pytest.mark.django_db(transaction=True)
def test_calls_of_a_killed_process_count_against_their_key_no_longer(
    acme: Organization, adam: Any, broker: Any, tmp_path: Path, settings: Any
) -> None:
    settings.GATEWAY_JOURNAL = str(tmp_path)
    key, _ = api_key_create(Actor(adam), name="one", scopes=["gateway:call"], monthly_micros=5_000)
    rows = [row(acme, key_id=str(key.pk)) for _ in range(2)]
    killed(tmp_path, *rows)

    async def take(*calls: str) -> list[bool]:
        holds, more = KeyHolds(), {"room_micros": 5_000, "read_at": time.monotonic()}
        taken = [await holds.take(key.pk, uuid.UUID(call), 2_500, **more) for call in calls]
        await holds.aclose()
        return taken

    assert asyncio.run(take(*(one["id"] for one in rows))) == [True, True]
    assert asyncio.run(take(str(uuid.uuid4()))) == [False]
    assert journals() == 2
    assert asyncio.run(take(str(uuid.uuid4()))) == [True]
    assert len(broker.zrange(f"agentcore:{{{key.pk}}}:ended", 0, -1)) == 2  # until a read of the database has them


@pytest.mark.django_db(transaction=True)
def test_a_refused_trace_is_stored_with_its_costs_and_keeps_no_other_back(
    acme: Organization, tmp_path: Path, refusing: None
) -> None:
    killed(tmp_path, row(acme), poisoned := row(acme, request={"messages": ["POISON"]}), row(acme))
    killed(tmp_path, lost := row(acme, model="POISON"), row(acme))
    killed(tmp_path, row(acme))
    assert recover(tmp_path, calls_ended) == 4
    assert ProductionTrace.objects.count() == 5  # of six; one is in a journal that was set aside
    stored = ProductionTrace.objects.get(pk=poisoned["id"])
    assert (stored.cost_micros, stored.request, stored.error) == (7, {}, "Its content could not be stored.")
    (aside,) = tmp_path.iterdir()
    assert aside.suffix == ASIDE and lost["id"].encode() in aside.read_bytes()
    assert recover(tmp_path, calls_ended) == 0  # it is not tried for ever


@pytest.mark.django_db(transaction=True)
def test_the_writer_goes_on_after_a_refused_trace(acme: Organization, tmp_path: Path, refusing: None) -> None:
    journal = Journal(tmp_path)
    written: list[Any] = []
    writer = TraceWriter(journal, linger=0.0, written=lambda one: written.append(one["id"]))
    rows = [row(acme), row(acme, request={"messages": ["POISON"]}), row(acme, model="POISON"), row(acme)]
    for one in rows:
        writer.put(PendingTrace(one, journal.begin({"t": "call", "row": one})))
    writer.close()
    assert ProductionTrace.objects.count() == 3 and written == [rows[0]["id"], rows[1]["id"], rows[3]["id"]]
