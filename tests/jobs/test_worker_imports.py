"""Modules that a worker does not load: each of its processes would hold them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from django.urls import reverse

from agentcore_site import env
from agentcore_site.jobs import notifications
from agentcore_site.jobs.models import Job
from budgets.alerts.pages import limit_page

PROGRAM = """
import json, sys
from agentcore_site.celery import app
import django
django.setup()
app.loader.import_default_modules()
app.finalize()
import training.services.execution, evaluation.execution
print(json.dumps(sorted(sys.modules)))
"""

# By what would load it again.
NOT_LOADED = {
    "pyarrow": "exports and archives, in the process that writes one",
    "rest_framework.serializers": "REST; with it requests, pygments and charset_normalizer",
    "rest_framework.views": "REST",
    "drf_spectacular.plumbing": "the OpenAPI description",
    "unfold.admin": "the admin's pages: they are found with the addresses (agentcore_site.urls)",
    "agentcore_site.urls": "addresses, and all pages behind them",
    "agentcore_site.health": "the web process's own pages",
    "jwt": "signing in",
    "django.test": "tests; rest_framework_simplejwt asks for it",
    "requests": "nothing of ours",
    "google.protobuf": "OTLP, in the process that receives it",
    "pandas": "nothing of ours",
    "matplotlib": "nothing of ours",
    "scipy": "nothing of ours",
    "torch": "own weights, in a model server",
}


CHILD = """
import json, os, sys
from celery.signals import worker_before_create_process
from agentcore_site.celery import app
import django
django.setup()
app.loader.import_default_modules()
app.finalize()
worker_before_create_process.send(sender=None)
shared = set(sys.modules)
import training.services.execution, evaluation.execution
print(json.dumps(sorted(set(sys.modules) - shared)))
"""


@pytest.mark.thorough(reason="a program of its own; it holds memory down")
def test_children_load_nothing_that_their_worker_did_not_load_for_all() -> None:
    """Each would hold a copy of its own: slices of training and evaluation need 30 MB of modules."""
    done = subprocess.run([sys.executable, "-c", CHILD], cwd=env.ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=env.ROOT, capture_output=True, text=True, check=True)
    body: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(body)


@pytest.mark.parametrize("module", NOT_LOADED)
def test_a_worker_does_not_load(loaded: set[str], module: str) -> None:
    assert "training.job_kind" in loaded and "experiences.trajectories.exports.job_kind" in loaded
    assert module not in loaded, f"{module} is for {NOT_LOADED[module]}"


NAMES = {
    "evaluation": "evaluation:report",
    "evolution": "experiences:evolution",
    "suite": "serving:suite_run",
    "survival": "serving:survival_run",
    "external_training": "events:training",
    "retention": "experiences:archiving",
    "encryption": "encrypting",
    "export": "experiences:export",
}


def test_the_paths_that_workers_send_are_those_of_the_pages() -> None:
    assert NAMES.keys() == notifications.JOB_PAGES.keys()
    for kind, name in NAMES.items() | {("training", "training:job")}:
        job = Job(kind=kind)
        assert notifications.job_page(job) == reverse(name, args=[job.id])
    assert limit_page(7) == f"{reverse('budgets:budget', args=[7])}#limit"


PUBLISHES = """
from agentcore_site.celery import app
import django, sys
django.setup()
app.loader.import_default_modules()
from agentcore_site.jobs.models import Job
from agentcore_site.jobs.notifications import job_page
assert job_page(Job(kind="training"))
assert "agentcore_site.urls" not in sys.modules
"""


def test_a_worker_loads_no_pages_to_publish_a_job() -> None:
    subprocess.run([sys.executable, "-c", PUBLISHES], cwd=env.ROOT, check=True)
