"""Large checkpoints in a bucket, through boto3 and django-storages, against a server of that protocol."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from django.core.files.storage import default_storage
from moto.server import ThreadedMotoServer

from agentcore_site import env
from agentcore_site.jobs import lifecycle
from agentcore_site.jobs.models import Job, Status
from agentcore_site.jobs.tasks import advance
from agentcore_site.lib.object_storage import ObjectsUnavailable
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from tests.support.running import SMALL, SMALL_POOL
from training.checkpoint_bytes import Damaged, checkpoint_load
from training.models import PolicyCheckpoint
from training.services import checkpoints
from training.services.checkpoint_uploads import checkpoint_upload
from training.services.run_setup import setup_of
from training.services.runs import run_start

BUCKET = "agentcore-test"
LARGE = os.urandom(10 * 2**20 + 1)  # the database holds up to 10 MB

pytestmark = pytest.mark.django_db


@pytest.fixture
def bucket(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
    settings.STORAGES = settings.STORAGES | {"default": env.bucket_storage(BUCKET, address)}
    yield server
    server.stop()


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
    bucket: ThreadedMotoServer, operator: Actor, agent: Agent, settings: Any
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
    bucket: ThreadedMotoServer, operator: Actor, agent: Agent, settings: Any, monkeypatch: pytest.MonkeyPatch
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
    assert advance(str(run.job_id)) == "storage away"
    settings.STORAGES = there
    advance(str(run.job_id))
    job = Job.objects.get(id=run.job_id)
    assert (job.status, job.error) == (Status.RUNNING, "")
    assert PolicyCheckpoint.objects.filter(run=run).latest("iteration").iteration > row.iteration
    lifecycle.cancel(None, job)
