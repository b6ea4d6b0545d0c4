"""Large checkpoints in a bucket, through boto3 and django-storages, against a server of that protocol."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection

from agentcore_site import env
from agentcore_site.ids import uuid7
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Reason, Status
from agentcore_site.jobs.tasks import advance
from agentcore_site.lib import object_storage
from agentcore_site.lib.object_storage import ObjectsUnavailable, object_open
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests import factories
from tests.support.proxy import Proxy
from tests.support.running import SMALL, SMALL_POOL, run_to_end
from tests.support.s3_server import BUCKET, s3_server
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import PolicyCheckpoint
from training.services import checkpoints
from training.services.checkpoint_uploads import checkpoint_upload
from training.services.run_setup import setup_of
from training.services.runs import run_start

LARGE = os.urandom(10 * 2**20 + 1)  # the database holds up to 10 MB

pytestmark = pytest.mark.django_db


@pytest.fixture
def bucket(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(monkeypatch) as address:
        settings.STORAGES = settings.STORAGES | {"default": env.bucket_storage(BUCKET, address)}
        yield address


def saved(operator: Actor, agent: Agent) -> PolicyCheckpoint:
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL)
    return checkpoints.checkpoint_save(run, iteration=1, data=LARGE, metrics={})


def test_a_large_checkpoint_goes_to_the_bucket_and_comes_back(bucket: Any, operator: Actor, agent: Agent) -> None:
    row = saved(operator, agent)
    assert row.data is None and default_storage.exists(row.path)
    assert hashlib.sha256(checkpoint_load(row)).hexdigest() == row.sha256


def test_one_that_is_gone_or_was_changed_says_so(bucket: Any, operator: Actor, agent: Agent) -> None:
    row = saved(operator, agent)
    client = default_storage.connection.meta.client
    client.put_object(Bucket=BUCKET, Key=row.path, Body=LARGE[:-1])
    with pytest.raises(Damaged, match="does not match its SHA-256"):
        checkpoint_load(row)
    client.delete_object(Bucket=BUCKET, Key=row.path)
    with pytest.raises(Damaged, match="is gone from storage"):
        checkpoint_load(row)


def test_while_the_bucket_is_away_the_database_keeps_a_checkpoint_and_moves_the_checkpoint_later(
    bucket: str, operator: Actor, agent: Agent, settings: Any
) -> None:
    there = settings.STORAGES
    settings.STORAGES = there | {"default": env.bucket_storage(BUCKET, "http://127.0.0.1:1")}
    row = saved(operator, agent)
    assert bytes(row.data or b"") == LARGE and not row.path
    assert checkpoints.checkpoints_move() == 0
    settings.STORAGES = there
    assert checkpoints.checkpoints_move() == 1
    row.refresh_from_db()
    assert row.data is None and checkpoint_load(row) == LARGE


def test_a_large_upload_goes_there_and_puts_right_what_was_lost(
    bucket: Any, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DATABASE_LIMIT", 1_000)  # so that a small policy's state is a large one
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL)
    data = setup_of(run).fresh_state().to_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    row = checkpoint_upload(operator, agent, data, sha256=sha256)
    client = default_storage.connection.meta.client
    assert row.data is None and client.get_object(Bucket=BUCKET, Key=row.path)["Body"].read() == data
    client.delete_object(Bucket=BUCKET, Key=row.path)
    again = checkpoint_upload(operator, agent, data, sha256=sha256)
    assert again.pk == row.pk and again.path != row.path and checkpoint_load(again) == data


@pytest.mark.django_db(transaction=True)
def test_a_job_waits_for_an_unreachable_checkpoint(
    bucket: str, operator: Actor, agent: Agent, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DATABASE_LIMIT", 1_000)  # so that a small policy's state is a large one
    config = SMALL | {"n_iterations": 400}  # more than a slice of the shipped length
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=config)
    while not PolicyCheckpoint.objects.filter(run=run).exists():
        advance(str(run.job_id))
    there = settings.STORAGES
    settings.STORAGES = there | {"default": env.bucket_storage(BUCKET, "http://127.0.0.1:1")}
    row = PolicyCheckpoint.objects.filter(run=run).latest("iteration")
    with pytest.raises(ObjectsUnavailable, match="Try again in a minute"):
        checkpoint_load(row)
    assert advance(str(run.job_id)) == "paused"
    job = Job.objects.get(id=run.job_id)
    assert job.status_reason == Reason.STORAGE_AWAY and "can't be reached" in job.error and job.not_before
    settings.STORAGES = there
    Job.objects.filter(id=job.id).update(not_before=job.created_at)
    assert lifecycle.resume_waiting() == 1
    advance(str(run.job_id))
    job.refresh_from_db()
    assert (job.status, job.error) == (Status.RUNNING, "")
    assert PolicyCheckpoint.objects.filter(run=run).latest("iteration").iteration > row.iteration
    lifecycle.cancel(None, job)


def test_a_bucket_that_goes_away_while_a_file_is_read_is_away(
    bucket: str, operator: Actor, agent: Agent, settings: Any
) -> None:
    row = saved(operator, agent)
    with Proxy(bucket) as way:
        settings.STORAGES = settings.STORAGES | {"default": env.bucket_storage(BUCKET, way.url)}
        way.cut_after(1_000_000)
        with pytest.raises(ObjectsUnavailable), object_open(row.path) as stored:
            stored.read()
        way.heal()
        with object_open(row.path) as stored:
            assert stored.read() == LARGE


@pytest.mark.django_db(transaction=True)
def test_no_row_is_locked_while_a_large_checkpoint_is_stored_by_a_job_or_uploaded(
    bucket: str, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DATABASE_LIMIT", 1_000)  # so that a small policy's state is a large one
    store, within = checkpoints.object_save, []

    def noting(name: str, data: bytes) -> str:
        within.append(connection.in_atomic_block)
        return store(name, data)

    monkeypatch.setattr(checkpoints, "object_save", noting)
    run = run_start(operator, agent=agent, environment_options=SMALL_POOL, config=SMALL)
    assert run_to_end(run.job).status == Status.COMPLETED
    kept = PolicyCheckpoint.objects.filter(run=run)
    data, in_jobs = checkpoint_load(kept[0]), len(within)
    twin = factories.AgentFactory(
        organization=agent.organization, environment=agent.environment, environment_options=agent.environment_options
    )
    assert checkpoint_load(checkpoint_upload(operator, twin, data, sha256=PolicyCheckpoint.digest(data))) == data
    assert within == [False] * (in_jobs + 1) and in_jobs and all(checkpoint_load(row) for row in kept)
    paths = set(kept.values_list("path", flat=True))
    assert "" not in paths and in_jobs >= len(paths)


def test_an_object_that_no_checkpoint_names_is_deleted_a_day_later(
    bucket: str, operator: Actor, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = saved(operator, agent)
    stray = default_storage.save(f"rl-checkpoints/{row.organization_id}/{row.pk}/stray.bin", ContentFile(b"a"))
    theirs = default_storage.save(f"rl-checkpoints/{uuid7()}/{row.pk}/of-another-site.bin", ContentFile(b"a"))
    assert checkpoints.strays_delete() == 0 and default_storage.exists(stray)
    monkeypatch.setattr(object_storage, "STRAY", -object_storage.STRAY)
    assert checkpoints.strays_delete() == 1 and not default_storage.exists(stray)
    assert default_storage.exists(theirs)
    assert checkpoint_load(row) == LARGE
