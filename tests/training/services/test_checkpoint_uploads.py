"""A checkpoint that comes back as a file: the bytes that left are taken, and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from agentcore_site.audit.models import AuditEvent
from agentcore_site.lib.errors import Conflict, Forbidden, Invalid, Missing, TooLarge
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.api.test_rest import problem
from tests.factories import AgentFactory
from tests.support.callers import Caller
from tests.support.pages import html
from tests.support.rows import queued_run
from training.checkpoint_bytes import checkpoint_load
from training.models import PolicyCheckpoint
from training.policies.archive import pack, unpack
from training.services import checkpoint_uploads
from training.services.checkpoint_uploads import checkpoint_upload, download_name, sha256_in
from training.services.checkpoints import checkpoint_save, job_with_queries
from training.services.run_setup import setup_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def saved(operator: Actor, agent: Agent) -> PolicyCheckpoint:
    run = queued_run(operator, agent)
    state = setup_of(run).fresh_state()
    state.iteration = 4
    return checkpoint_save(run, iteration=4, data=state.to_bytes(), metrics={})


@pytest.fixture
def twin(agent: Agent, operator: Actor) -> Agent:
    made: Agent = AgentFactory(
        organization=agent.organization,
        created_by=operator.user,
        environment=agent.environment,
        environment_options=agent.environment_options,
    )
    return made


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_downloaded_checkpoint_is_uploaded_again_to_the_byte(
    operator: Actor, saved: PolicyCheckpoint, twin: Agent
) -> None:
    data = checkpoint_load(saved)
    made = checkpoint_upload(operator, twin, data, sha256=saved.sha256.upper())
    assert checkpoint_load(made) == data and (made.run, made.iteration, made.tags) == (None, 4, ["uploaded"])
    assert AuditEvent.objects.get(action="checkpoint.uploaded").after["sha256"] == saved.sha256
    with pytest.raises(Conflict, match=f"has it already: it is {made.label}"):
        checkpoint_upload(operator, twin, data, sha256=saved.sha256)
    with pytest.raises(Conflict, match="was uploaded, and its agent has had no job"):
        job_with_queries(made)


@pytest.mark.parametrize("at", [0, 30, -30, -1])
def test_one_changed_byte_is_refused_and_nothing_is_stored(
    operator: Actor, saved: PolicyCheckpoint, twin: Agent, at: int
) -> None:
    data = bytearray(checkpoint_load(saved))
    data[at] ^= 1
    with pytest.raises(Invalid, match="at least one byte differs"):
        checkpoint_upload(operator, twin, bytes(data), sha256=saved.sha256)
    assert not PolicyCheckpoint.objects.filter(agent=twin).exists()


def test_damaged_bytes_are_put_right_by_the_file(operator: Actor, agent: Agent, saved: PolicyCheckpoint) -> None:
    data, digest = checkpoint_load(saved), saved.sha256
    PolicyCheckpoint.objects.filter(pk=saved.pk).update(data=data[:-1])
    assert checkpoint_upload(operator, agent, data, sha256=digest).pk == saved.pk
    saved.refresh_from_db()
    assert checkpoint_load(saved) == data


class Bomb:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def with_pickle(data: bytes) -> bytes:
    return with_array(data, np.array([Bomb()], dtype=object))


def with_array(data: bytes, array: Any) -> bytes:
    stream = io.BytesIO(data)
    with zipfile.ZipFile(stream, "a") as archive:
        member = io.BytesIO()
        np.lib.format.write_array(member, array, allow_pickle=True)
        archive.writestr("policy/extra.npy", member.getvalue())
    return stream.getvalue()


def promising(data: bytes) -> bytes:
    """An array whose header promises petabytes."""
    stream = io.BytesIO(data)
    with zipfile.ZipFile(stream, "a") as archive:
        member = io.BytesIO()
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**14,)})
        archive.writestr("policy/extra.npy", member.getvalue())
    return stream.getvalue()


def changed(**values: Any) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        return pack(unpack(data) | {name.replace("__", "/"): value for name, value in values.items()})

    return change


def nested_without_end(_: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("scalars.json", "[" * 100_000)
    return stream.getvalue()


@pytest.mark.parametrize(
    "forge",
    [
        pickle.dumps, with_pickle, promising, nested_without_end,
        lambda data: b"", lambda data: data[:-40], lambda data: json.dumps({"iteration": 4}).encode(),
        changed(format=99), changed(policy__kind="another"), changed(policy__options={"bits": 60}),
        changed(policy__weights=np.zeros((3, 1))), changed(policy__own=np.full(4, np.nan)), changed(iteration=-1),
        changed(policy__actions=7), changed(policy__vocabulary=[["x"]]),
    ],
)  # fmt: skip
def test_a_file_that_is_no_checkpoint_is_refused_with_the_reason(
    operator: Actor, saved: PolicyCheckpoint, twin: Agent, forge: Callable[[bytes], bytes], capsys: Any
) -> None:
    data = forge(checkpoint_load(saved))
    with pytest.raises(Invalid, match=r"refused: it is no checkpoint of this program, or is damaged \(.+\)"):
        checkpoint_upload(operator, twin, data, sha256=sha256(data))
    assert "executed" not in capsys.readouterr().out
    assert not PolicyCheckpoint.objects.filter(agent=twin).exists()


def test_file_has_to_fit_the_agent(operator: Actor, saved: PolicyCheckpoint, twin: Agent) -> None:
    data = checkpoint_load(saved)
    talker = AgentFactory(organization=twin.organization, created_by=operator.user, runtime="llm")
    with pytest.raises(Invalid, match="holds a policy over actions"):
        checkpoint_upload(operator, talker, data, sha256=saved.sha256)
    actions = [*unpack(data)["policy/actions"][:-1], "fly"]
    other = changed(policy__actions=actions)(data)
    with pytest.raises(Invalid, match="chooses among other actions"):
        checkpoint_upload(operator, twin, other, sha256=sha256(other))
    with pytest.raises(Invalid, match="64 hexadecimal"):
        checkpoint_upload(operator, twin, data, sha256="abc")
    Agent.objects.filter(pk=twin.pk).update(archived_at="2026-01-01T00:00:00Z")
    with pytest.raises(Conflict, match="archived"):
        checkpoint_upload(operator, Agent.objects.get(pk=twin.pk), data, sha256=saved.sha256)


def test_each_role_uploads_or_is_refused(
    saved: PolicyCheckpoint, agent: Agent, dan: Any, stella: Any, charlie: Any
) -> None:
    for person, refusal in ((dan, Forbidden), (stella, Forbidden), (charlie, Missing)):
        with pytest.raises(refusal):
            checkpoint_upload(Actor(person), agent, checkpoint_load(saved), sha256=saved.sha256)


def test_a_download_goes_up_by_rest_and_by_the_page(
    olivia: Any, saved: PolicyCheckpoint, agent: Agent, twin: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Client(raise_request_exception=True)
    console.force_login(olivia)
    got = console.get(f"/checkpoints/{saved.pk}/download/")
    name = download_name(saved)
    assert f'filename="{name}"' in got["Content-Disposition"] and sha256_in(name) == saved.sha256
    path = f"/agents/{twin.pk}/checkpoints/upload/"

    def file(content: bytes, called: str = name) -> SimpleUploadedFile:
        return SimpleUploadedFile(called, content)

    refused = console.post(path, {"file": file(got.content[:-1] + b"!")})
    assert refused.status_code == 400 and "at least one byte differs" in html(refused)
    assert "Choose a file" in html(console.post(path, {}))
    assert "64 hexadecimal digits" in html(console.post(path, {"file": file(got.content, "renamed.bin")}))
    taken = console.post(path, {"file": file(got.content)}, follow=True)
    assert "was uploaded" in html(taken) and "uploaded</span>" in html(taken)
    # Beside one of a job: its page asks for no job.
    mine = PolicyCheckpoint.objects.get(agent=twin)
    assert console.get(f"/checkpoints/compare/?a={saved.pk}&b={mine.pk}").status_code == 200
    api = Caller(olivia)
    third = AgentFactory(
        organization=agent.organization, environment=agent.environment, environment_options=agent.environment_options
    )
    body = {"agent": third.slug, "sha256": saved.sha256, "file": file(got.content)}
    made = api.client.post("/api/v1/checkpoints", body, headers=api.headers)
    assert made.status_code == 201 and (made.json()["job_id"], made.json()["sha256"]) == (None, saved.sha256)
    wrong = api.client.post("/api/v1/checkpoints", body | {"file": file(got.content[1:])}, headers=api.headers)
    assert "at least one byte differs" in problem(wrong, 400)["detail"]
    problem(api.post("evaluations", {"checkpoint_id": made.json()["id"]}), 409)
    monkeypatch.setattr(checkpoint_uploads, "MOST_BYTES", 10)
    with pytest.raises(TooLarge):
        checkpoint_uploads.read_upload(file(b"x" * 11))
