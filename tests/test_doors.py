"""Every door of the house, walked by strangers and by each role. The addresses are those of the resolver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentcore_site.audit.models import AuditEvent
from agentcore_site.audit_export.models import AuditStream
from agentcore_site.jobs import workers
from agentcore_site.jobs.models import Job, ShareLink
from agentcore_site.jobs.services import share_create, share_revoke_all
from agentcore_site.models import SavedView
from agentcore_site.notices.models import WebhookEndpoint
from agentcore_site.routing import websocket_urlpatterns
from agentcore_site.rpc import METHODS
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import ApiKey, Erasure, Invitation, Membership, Organization, Passkey
from agentcore_site.tenancy.roles import Role
from agentcore_site.views.audit import STREAM_ACTS
from budgets.models import Budget, BudgetAlert, BudgetLimit, ModelPrice
from evaluation.events.training import training_request
from evaluation.models import EvaluationRun
from evaluation.services import evaluation_start
from evaluation.serving.models import Feedback, LoopTurn, Release
from evaluation.serving.releases.bundle import Bundle, ModelPart
from experiences.agents.services.datasets import dataset_create
from experiences.learning.lessons.stamps import experience_stamp, pack_stamp
from experiences.models import (
    Agent,
    Annotation,
    ContextDelta,
    Dataset,
    EndpointServer,
    ExecutionTrace,
    Experience,
    ModelEndpoint,
    Playbook,
    PromptPack,
    TrajectoryRecord,
)
from experiences.playbooks.services.playbooks import playbook_create
from experiences.trajectories.annotations.services import annotation_create
from tests import factories
from tests.support.callers import Caller
from tests.support.playbooks import delta_waiting, evolution_failed
from tests.support.rounds import one_in, rounds
from tests.support.routes import (
    INTERNAL,
    INVITED,
    PUBLIC,
    SHARED,
    all_routes,
    filled,
    of_admin,
    of_rest,
    parameters,
    routes,
)
from tests.support.rows import checkpoint_of_run, lived_run
from tests.support.sockets import Socket, browser_headers
from tests.support.suites import suite_run_stored
from tests.support.survival import survival_run_stored
from training.grading.graded import graded_set
from training.grading.selectors import scorers_of
from training.grading.services import sample_draw
from training.models import JobComment, PolicyCheckpoint, TrainingRun
from training.services.notes import comment_add, job_describe

pytestmark = pytest.mark.django_db

Ask = Callable[..., Any]
AGAIN = pytest.mark.thorough(reason="the same walk by another person")
METHODS_OF_HTTP = ("get", "post", "put", "patch", "delete")
UNSAFE = METHODS_OF_HTTP[1:]
# Words of acme's rows that no stranger ever sends, so that no echo of a request can hold them.
SECRETS = ("Zanzibar", "question 1:", "-iter2", "swahili-numbers", "olivia", "Acme")

# Changes what is the person's own alone, whose organisation they belong to or not.
OWN = {"notices/read/", "columns/", "get-started/hide/"}
# Make an agent or a dataset of the person's own organisation: tests/console/test_first_steps.py.
OWN_ROW = {"agents/demo/", "datasets/sample/"}
# What a POST to a console page needs; the others only show.
CONSOLE_WRITES = {
    "views/save/": "view",
    "audit/webhook/": "audit.stream",
    **{f"audit/webhook/{one}/": "audit.stream" for one in STREAM_ACTS},
    "people/": "members.edit",
    "people/<int:member_id>/": "members.edit",
    "people/<int:member_id>/second-factor/remove/": "members.edit",
    "people/<int:member_id>/remove/": "members.edit",
    "people/second-factor/": "members.edit",
    "people/invitations/<uuid:invitation_id>/resend/": "members.edit",
    "people/invitations/<uuid:invitation_id>/revoke/": "members.edit",
    "share-links/<uuid:share_link_id>/revoke/": "share.edit",
    "webhooks/new/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/test/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/on/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/off/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/secret/": "webhook.edit",
    "webhooks/deliveries/<uuid:delivery_id>/again/": "webhook.edit",
    "webhooks/<uuid:webhook_id>/remove/": "webhook.edit",
    "notices/read/": "view",
    "notices/settings/": "view",
    "agents/new/": "agent.edit",
    "agents/demo/": "agent.edit",
    "get-started/hide/": "view",
    "datasets/sample/": "dataset.edit",
    "agents/<uuid:agent_id>/edit/": "agent.edit",
    "agents/<uuid:agent_id>/archive/": "agent.edit",
    "experiences/chosen/": "agent.edit",
    "experiences/<uuid:experience_id>/edit/": "agent.edit",
    "experiences/<uuid:experience_id>/restore/": "agent.edit",
    "experiences/<uuid:experience_id>/prune/": "agent.edit",
    "experiences/<uuid:experience_id>/quarantine/": "agent.edit",
    "experiences/<uuid:experience_id>/approve/": "agent.edit",
    "experiences/<uuid:experience_id>/merge/": "agent.edit",
    "reviews/lessons/<uuid:experience_id>/approve/": "agent.edit",
    "reviews/lessons/<uuid:experience_id>/reject/": "agent.edit",
    "reviews/<uuid:delta_id>/approve/": "playbook.edit",
    "reviews/<uuid:delta_id>/reject/": "playbook.edit",
    "evolutions/<uuid:job_id>/retry/": "playbook.evolve",
    "evolutions/<uuid:job_id>/cancel/": "run.cancel",
    "agents/<uuid:agent_id>/playbook/create/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/switch/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/add/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/items/<slug:handle>/edit/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/items/<slug:handle>/remove/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/items/<slug:handle>/revert/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/rollback/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/adopt/": "playbook.edit",
    "agents/<uuid:agent_id>/playbook/evolve/": "playbook.evolve",
    "agents/<uuid:agent_id>/playbook/delete/": "playbook.edit",
    "agents/<uuid:agent_id>/releases/make/": "release.make",
    "skills/": "view",
    "agents/<uuid:agent_id>/skills/import/": "agent.edit",
    "releases/<uuid:release_id>/deploy/": "deployment.edit",
    "releases/<uuid:release_id>/approve/": "deployment.edit",
    "deployments/<uuid:deployment_id>/pause/": "deployment.edit",
    "deployments/<uuid:deployment_id>/resume/": "deployment.edit",
    "deployments/<uuid:deployment_id>/advance/": "deployment.edit",
    "deployments/<uuid:deployment_id>/roll-back/": "deployment.edit",
    "agents/<uuid:agent_id>/serving/": "deployment.edit",
    "agents/<uuid:agent_id>/serving/back/": "deployment.edit",
    "agents/<uuid:agent_id>/serving/edits/": "deployment.edit",
    "agents/<uuid:agent_id>/loop/": "deployment.edit",
    "agents/<uuid:agent_id>/loop/start/": "deployment.edit",
    "loop-turns/<uuid:turn_id>/stop/": "deployment.edit",
    "loop-turns/<uuid:turn_id>/rows/": "deployment.edit",
    "traces/<uuid:production_trace_id>/feedback/": "feedback.give",
    "playground/": "gateway.call",
    "playground/answer/": "gateway.call",
    "playground/rows/": "data.view",
    "playground/cell/": "data.view",
    "playground/row/": "dataset.edit",
    "playground/lesson/": "agent.edit",
    "playground/prompt/": "agent.edit",
    "events/": "events.edit",
    "events/publishing/": "events.edit",
    "events/trainings/<uuid:job_id>/cancel/": "run.cancel",
    "events/publishers/<uuid:credential_id>/revoke/": "events.edit",
    "events/dead-letters/<uuid:letter_id>/retry/": "events.edit",
    "events/dead-letters/<uuid:letter_id>/dismiss/": "events.edit",
    "suites/new/": "suite.edit",
    "suites/add/": "suite.edit",
    "suites/<uuid:suite_id>/version/": "suite.edit",
    "suites/<uuid:suite_id>/archive/": "suite.edit",
    "suites/<uuid:suite_id>/run/": "evaluate",
    "suite-runs/<uuid:job_id>/cancel/": "run.cancel",
    "suite-runs/<uuid:job_id>/resume/": "run.resume",
    "releases/<uuid:release_id>/survival/": "evaluate",
    "survival-runs/<uuid:job_id>/cancel/": "run.cancel",
    "survival-runs/<uuid:job_id>/resume/": "run.resume",
    "exports/start/": "export",
    "exports/<uuid:export_id>/cancel/": "export",
    "archives/<uuid:organization_id>/rule/": "retention.edit",
    "archives/<uuid:organization_id>/start/": "retention.run",
    "archives/<uuid:organization_id>/cancel/": "retention.run",
    "archives/<uuid:archive_id>/restore/": "retention.run",
    "encryption/<uuid:organization_id>/rotate/": "encryption.edit",
    "encryption/<uuid:organization_id>/end/": "encryption.edit",
    "encryption/<uuid:organization_id>/move/": "encryption.edit",
    "encryption/<uuid:organization_id>/stop/": "encryption.edit",
    "prompt-packs/new/": "agent.edit",
    "prompt-packs/<uuid:pack_id>/": "agent.edit",
    "prompt-packs/<uuid:pack_id>/archive/": "agent.edit",
    "tool-servers/new/": "endpoint.edit",
    "tool-servers/<uuid:server_id>/": "endpoint.edit",
    "tool-servers/<uuid:server_id>/archive/": "endpoint.edit",
    "tool-servers/<uuid:server_id>/offer/": "agent.edit",
    "agents/test/": "agent.edit",
    "agents/server-tools/<uuid:server_id>/": "agent.edit",
    "endpoints/new/": "endpoint.edit",
    "endpoints/test/": "agent.edit",
    "endpoints/<uuid:endpoint_id>/": "endpoint.edit",
    "endpoints/<uuid:endpoint_id>/archive/": "endpoint.edit",
    "endpoints/<uuid:endpoint_id>/server/": "endpoint.edit",
    "endpoints/<uuid:endpoint_id>/server/switch/": "endpoint.edit",
    "jobs/<uuid:job_id>/note/": "agent.edit",
    "jobs/<uuid:job_id>/comments/": "agent.edit",
    "jobs/<uuid:job_id>/pin/": "view",
    "jobs/<uuid:job_id>/unpin/": "view",
    "jobs/<uuid:job_id>/pause/": "run.pause",
    "jobs/<uuid:job_id>/resume/": "run.resume",
    "jobs/<uuid:job_id>/go-on/": "run.start",
    "budgets/of-job/<uuid:job_id>/ask/": "run.resume",
    "jobs/<uuid:job_id>/cancel/": "run.cancel",
    "jobs/<uuid:job_id>/share/": "share.edit",
    "jobs/<uuid:job_id>/unshare/<uuid:link_id>/": "share.edit",
    "jobs/<uuid:job_id>/unshare/": "share.edit",
    "trajectories/<uuid:trajectory_id>/annotate/": "annotation.edit",
    "grader/<uuid:job_id>/draw/": "annotation.edit",
    "grader/samples/<uuid:sample_id>/judge/": "annotation.edit",
    "datasets/annotated/": "dataset.edit",
    "datasets/chosen/": "dataset.edit",
    "datasets/new/": "dataset.edit",
    "datasets/preview/": "dataset.edit",
    "datasets/<uuid:dataset_id>/edit/": "dataset.edit",
    "datasets/<uuid:dataset_id>/archive/": "dataset.edit",
    "datasets/<uuid:dataset_id>/restore/": "dataset.edit",
    "launch/": "run.start",
    "launch/upload/": "dataset.edit",
    "launch/domain/": "dataset.edit",
    "checkpoints/<uuid:checkpoint_id>/tags/": "checkpoint.edit",
    "checkpoints/<uuid:checkpoint_id>/promote/": "release.make",
    "agents/<uuid:agent_id>/roll-back/": "release.make",
    "agents/<uuid:agent_id>/checkpoints/upload/": "checkpoint.edit",
    "evaluations/start/": "evaluate",
    "evaluations/<uuid:job_id>/cancel/": "run.cancel",
    "evaluations/<uuid:job_id>/resume/": "run.resume",
    "budgets/new/": "budget.edit",
    "budgets/<int:budget_id>/": "budget.edit",
    "budgets/prices/set/": "price.edit",
    "budgets/settings/": "budget.edit",
    "budgets/settings/secret/": "budget.edit",
}
# What only roles that work with raw rows read ("data.view"); who only looks is refused, by every interface alike.
RAW = {
    "agents/<uuid:agent_id>/loop/",
    "trajectories/", "trajectories/<uuid:trajectory_id>/", "trajectories/<uuid:trajectory_id>/steps/",
    "trajectories/<uuid:trajectory_id>/json/", "trajectories/compare/",
    "grader/<uuid:job_id>/", "grader/samples/<uuid:sample_id>/",
    "jobs/<uuid:job_id>/groups/<int:iteration>/<int:scenario>/", "executions/<uuid:trace_id>/",
    "traces/", "traces/<uuid:production_trace_id>/", "traces/<uuid:production_trace_id>/json/",
    "endpoints/", "tool-servers/", "releases/<uuid:release_id>/json/", "releases/<uuid:release_id>/tensorzero/",
    "releases/<uuid:release_id>/skill/", "api/v1/releases/<uuid:pk>/skill",
    "api/v1/trajectories", "api/v1/trajectories/<uuid:pk>", "api/v1/training-jobs/<uuid:pk>/groups",
    "api/v1/training-jobs/<uuid:pk>/failures",
    "api/v1/annotations", "api/v1/annotations/<uuid:pk>", "api/v1/executions", "api/v1/executions/<uuid:pk>",
    "api/v1/traces", "api/v1/traces/<uuid:pk>", "api/v1/feedback", "api/v1/feedback/<uuid:pk>",
    "api/v1/model-endpoints", "api/v1/model-endpoints/<uuid:pk>", "api/v1/tool-servers",
    "api/v1/tool-servers/<uuid:pk>", "api/v1/budgets/<int:budget>/ledger", "api/v1/loop-turns/<uuid:turn>/rows",
    "api/v1/releases/<uuid:pk>/tensorzero", "api/v1/agents/<str:agent>/tensorzero",
    "datasets/<uuid:dataset_id>/download/", "api/v1/datasets/<uuid:dataset>/rows", "api/v1/datasets/<uuid:pk>/download",
    "api/v1/suite-runs/<uuid:run>/results", "api/v1/suite-runs/<uuid:run>/results/export",
}  # fmt: skip
# Pages that are not for every member, and the right that shows them. A form's right is in CONSOLE_WRITES.
READS = dict.fromkeys(RAW, "data.view") | {
    "annotations/<uuid:annotation_id>/": "annotation.edit",
    "archives/": "retention.run",
    "archives/jobs/<uuid:job_id>/": "retention.run",
    "audit/": "audit.view",
    "audit/export/": "audit.view",
    "budgets/<int:budget_id>/csv/": "export",
    "budgets/<int:budget_id>/limit/": "budget.edit",
    "budgets/reconcile/": "export",
    "get-started/": "agent.edit",
    "notices/names/": "agent.edit",
    "checkpoints/<uuid:checkpoint_id>/download/": "checkpoint.download",
    "encryption/": "encryption.edit",
    "encryption/jobs/<uuid:job_id>/": "encryption.edit",
    "exports/<uuid:export_id>/download/": "export",
    "exports/new/": "export",
    "share-links/": "share.edit",
    "system/": "site",  # of staff alone, in any role
    "webhooks/": "webhook.edit",
}
# REST: for each write what it needs and a body that gets as far as the question who may.
ROWS = [{"query": "what is 1?", "expected_outcome": {"answer": "1"}}]
STAMP = experience_stamp(pack_stamp(""), "x9", 1, "", "When lost, ask.")
# A form, with a file that the agent has already.
# Bodies with bytes are sent as forms with files.
FILE = {"agent": "router-7", "sha256": PolicyCheckpoint.digest(b"policy"), "file": b"policy"}
SKILL = b"---\nname: late-parcels\ndescription: d\n---\n- Name the depot when a parcel is late.\n"
OF_ROUTER = {"key": "service.name", "value": {"stringValue": "router-7"}}
# A dashboard and a chart of it: every organisation has them, each of its own rows.
NO_ROW = {"key", "chart"}
REST_WRITES: dict[tuple[str, str], tuple[str, Any]] = {
    ("post", "agents"): ("agent.edit", {"name": "New"}),
    ("delete", "share-links/<uuid:pk>"): ("share.edit", {}),
    ("post", "webhooks"): ("webhook.edit", {"name": "new", "url": "http://127.0.0.1:1/"}),
    ("patch", "webhooks/<uuid:pk>"): ("webhook.edit", {"types": ["job.failed"]}),
    ("post", "webhooks/<uuid:pk>/test"): ("webhook.edit", {}),
    ("post", "webhooks/<uuid:pk>/rotate"): ("webhook.edit", {}),
    ("post", "webhook-deliveries/<uuid:pk>/again"): ("webhook.edit", {}),
    ("delete", "webhooks/<uuid:pk>"): ("webhook.edit", {}),
    ("post", "notices/read"): ("view", {}),
    ("patch", "notice-preferences"): ("view", {"digest": True}),
    ("patch", "budget-settings"): ("budget.edit", {"email_admins": False}),
    ("post", "budget-settings/secret"): ("budget.edit", {}),
    ("post", "jobs/<uuid:job>/raise-request"): ("run.resume", {}),
    ("post", "audit-webhook"): ("audit.stream", {"url": "http://127.0.0.1:1/"}),
    ("patch", "audit-webhook"): ("audit.stream", {"paused": True}),
    ("delete", "audit-webhook"): ("audit.stream", {}),
    ("post", "audit-webhook/test"): ("audit.stream", {}),
    ("post", "audit-webhook/restart"): ("audit.stream", {"beginning": False}),
    ("post", "audit-webhook/secret"): ("audit.stream", {}),
    ("post", "encryption/rotate"): ("encryption.edit", {}),
    ("post", "encryption/end"): ("encryption.edit", {}),
    ("post", "encryption/move"): ("encryption.edit", {}),
    ("post", "encryption/stop"): ("encryption.edit", {}),
    ("patch", "agents/<str:agent>/serving"): ("deployment.edit", {"while_away_usd": 1}),
    ("post", "saved-views"): ("view", {"page": "training:jobs", "name": "New", "query": "q=x"}),
    ("patch", "saved-views/<uuid:pk>"): ("view", {"name": "Mine"}),
    ("delete", "saved-views/<uuid:pk>"): ("view", {}),
    ("patch", "agents/<str:agent>"): ("agent.edit", {"description": "x"}),
    ("post", "agents/<str:agent>/test"): ("agent.edit", {}),
    ("post", "experiences/import"): (
        "agent.edit",
        {"agent": "router-7", "records": [{"handle": "x9", "summary": "When lost, ask.", "stamp": STAMP}]},
    ),
    ("post", "skills/verify"): ("view", {"file": SKILL}),
    ("post", "skills/import"): ("agent.edit", {"agent": "router-7", "file": SKILL}),
    ("patch", "experiences/<uuid:pk>"): ("agent.edit", {"summary": "When in doubt, read it again."}),
    ("post", "experiences/<uuid:pk>/restore"): ("agent.edit", {}),
    ("post", "experiences/<uuid:pk>/prune"): ("agent.edit", {}),
    ("post", "experiences/<uuid:pk>/quarantine"): ("agent.edit", {}),
    ("post", "experiences/<uuid:pk>/approve"): ("agent.edit", {}),
    ("post", "experiences/<uuid:pk>/reject"): ("agent.edit", {}),
    ("post", "experiences/<uuid:pk>/merge"): ("agent.edit", {}),
    ("post", "playbooks"): ("playbook.edit", {"agent": "router-7"}),
    ("post", "playbooks/<str:agent>/adopt"): ("playbook.edit", {}),
    ("post", "playbooks/<str:agent>/items"): ("playbook.edit", {"category": "learnings", "content": "Ask twice."}),
    ("patch", "playbooks/<str:agent>/items/<slug:handle>"): ("playbook.edit", {"content": "Ask once more."}),
    ("post", "playbooks/<str:agent>/items/<slug:handle>/revert"): ("playbook.edit", {"as_in": 1}),
    ("delete", "playbooks/<str:agent>/items/<slug:handle>"): ("playbook.edit", {}),
    ("post", "playbooks/<str:agent>/roll-back"): ("playbook.edit", {"to": 1}),
    ("post", "reviews/<uuid:pk>/approve"): ("playbook.edit", {}),
    ("post", "reviews/<uuid:pk>/reject"): ("playbook.edit", {}),
    ("post", "releases"): ("release.make", {"agent": "router-7"}),
    ("post", "releases/<uuid:pk>/approve"): ("deployment.edit", {}),
    ("post", "agents/<str:agent>/serving/back"): ("deployment.edit", {}),
    ("post", "deployments"): (
        "deployment.edit",
        lambda values: {"release": str(values["release_id"]), "strategy": "immediate"},
    ),
    ("post", "deployments/<uuid:pk>/pause"): ("deployment.edit", {}),
    ("post", "deployments/<uuid:pk>/resume"): ("deployment.edit", {}),
    ("post", "deployments/<uuid:pk>/advance"): ("deployment.edit", {}),
    ("post", "deployments/<uuid:pk>/roll-back"): ("deployment.edit", {}),
    ("post", "feedback"): ("feedback.give", lambda values: thumbs_up(values)),
    ("delete", "feedback/<uuid:pk>"): ("feedback.give", {}),
    ("post", "otlp/v1/traces"): ("trace.record", {"resourceSpans": [{"resource": {"attributes": [OF_ROUTER]}}]}),
    ("post", "otlp/v1/logs"): ("trace.record", {"resourceLogs": [{"resource": {"attributes": [OF_ROUTER]}}]}),
    ("post", "otlp/v1/metrics"): ("trace.record", {"resourceMetrics": []}),
    ("post", "training/start"): (
        "run.start",
        {"training_config": {"algorithm": "ppo", "base_model": "qwen2.5-32b-instruct"}},
    ),
    ("post", "training/<str:pk>/cancel"): ("run.cancel", {}),
    ("patch", "event-publishing"): ("events.edit", {"publishes": True}),
    ("post", "event-publishers"): ("events.edit", {"name": "new"}),
    ("delete", "event-publishers/<uuid:pk>"): ("events.edit", {}),
    ("post", "dead-letters/<uuid:pk>/retry"): ("events.edit", {}),
    ("post", "dead-letters/<uuid:pk>/dismiss"): ("events.edit", {}),
    ("post", "suites"): ("suite.edit", {"built_in": "safety"}),
    ("delete", "suites/<uuid:pk>"): ("suite.edit", {}),
    ("post", "suites/<uuid:pk>/versions"): ("suite.edit", {"spec": {"parts": [{"category": "a", "probes": "bias"}]}}),
    ("post", "suite-runs"): ("evaluate", {"suite": "zanzibar-suite", "agent": "router-7"}),
    ("post", "suite-runs/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("post", "suite-runs/<uuid:pk>/resume"): ("run.resume", {}),
    ("post", "survival-runs"): ("evaluate", lambda values: {"release": str(values["release_id"]), "model": "large"}),
    ("post", "survival-runs/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("post", "survival-runs/<uuid:pk>/resume"): ("run.resume", {}),
    ("post", "annotations"): (
        "annotation.edit",
        lambda values: {"trajectory": str(values["trajectory_id"]), "label": "good"},
    ),
    ("patch", "annotations/<uuid:pk>"): ("annotation.edit", {"score": 1}),
    ("delete", "annotations/<uuid:pk>"): ("annotation.edit", {}),
    ("post", "exports"): ("export", {"format": "jsonl"}),
    ("post", "exports/<uuid:pk>/cancel"): ("export", {}),
    ("post", "archives"): ("retention.run", {}),
    ("post", "archives/<uuid:pk>/restore"): ("retention.run", {}),
    ("post", "archive-rules"): ("retention.edit", {"agent": "router-7", "keep_days": 30}),
    ("post", "prompt-packs"): ("agent.edit", {"name": "new", "system": "You are careful."}),
    ("patch", "prompt-packs/<uuid:pk>"): ("agent.edit", {"domain": "x"}),
    ("delete", "prompt-packs/<uuid:pk>"): ("agent.edit", {}),
    ("post", "tool-servers"): ("endpoint.edit", {"name": "new", "url": "http://127.0.0.1:9/mcp"}),
    ("patch", "tool-servers/<uuid:pk>"): ("endpoint.edit", {"tools": ["one"]}),
    ("delete", "tool-servers/<uuid:pk>"): ("endpoint.edit", {}),
    ("post", "tool-servers/<uuid:pk>/offer"): ("agent.edit", {}),
    ("post", "model-endpoints"): ("endpoint.edit", {"name": "new", "base_url": "http://127.0.0.1:1/v1"}),
    ("patch", "model-endpoints/<uuid:pk>"): ("endpoint.edit", {"model": "other"}),
    ("delete", "model-endpoints/<uuid:pk>"): ("endpoint.edit", {}),
    ("post", "model-endpoints/<uuid:pk>/test"): ("agent.edit", {}),
    ("patch", "agents/<str:agent>/small-edits"): ("deployment.edit", {"most": 2}),
    ("patch", "agents/<str:agent>/loop"): ("deployment.edit", {"daily": True}),
    ("post", "agents/<str:agent>/loop/start"): ("deployment.edit", {}),
    ("post", "loop-turns/<uuid:pk>/stop"): ("deployment.edit", {}),
    ("post", "loop-turns/<uuid:turn>/rows"): ("deployment.edit", {"approve": True}),
    ("post", "datasets"): ("dataset.edit", {"name": "new", "rows": ROWS}),
    ("post", "budgets/reconcile"): ("export", {"file": b"date,model,cost\n2026-01-01,m,1\n"}),
    ("post", "datasets/annotated"): (
        "dataset.edit",
        lambda values: {"filters": {"trajectory": str(values["trajectory_id"])}, "answer": "Ask."},
    ),
    ("patch", "datasets/<uuid:pk>"): ("dataset.edit", {"domain": "x"}),
    ("post", "datasets/<uuid:pk>/archive"): ("dataset.edit", {}),
    ("post", "datasets/<uuid:pk>/restore"): ("dataset.edit", {}),
    ("post", "training-jobs"): ("run.start", {"agent": "router-7", "config": {"n_iterations": 1}}),
    ("post", "training-jobs/estimate"): ("view", {"agent": "router-7"}),
    ("patch", "training-jobs/<uuid:pk>"): ("agent.edit", {"note": "Kept.", "tags": ["kept"]}),
    ("post", "training-jobs/<uuid:pk>/comments"): ("agent.edit", {"text": "Look at it."}),
    ("patch", "training-jobs/<uuid:pk>/comments/<uuid:comment>"): ("agent.edit", {"text": "Look at it again."}),
    ("delete", "training-jobs/<uuid:pk>/comments/<uuid:comment>"): ("agent.edit", {}),
    ("post", "training-jobs/<uuid:pk>/pin"): ("view", {}),
    ("delete", "training-jobs/<uuid:pk>/pin"): ("view", {}),
    ("post", "training-jobs/<uuid:pk>/pause"): ("run.pause", {}),
    ("post", "training-jobs/<uuid:pk>/resume"): ("run.resume", {}),
    ("post", "training-jobs/<uuid:pk>/go-on"): ("run.start", {"max_budget_usd": 1}),
    ("post", "training-jobs/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("post", "jobs/<uuid:pk>/share"): ("share.edit", {}),
    ("delete", "jobs/<uuid:pk>/share/<uuid:link>"): ("share.edit", {}),
    ("delete", "jobs/<uuid:pk>/share"): ("share.edit", {}),
    ("patch", "checkpoints/<uuid:pk>"): ("checkpoint.edit", {"tags": ["kept"]}),
    ("post", "checkpoints"): ("checkpoint.edit", FILE),
    ("post", "checkpoints/<uuid:pk>/promote"): ("release.make", {}),
    ("post", "agents/<str:agent>/roll-back"): ("release.make", {}),
    ("post", "evaluations"): ("evaluate", lambda values: {"training_job_id": str(values["job_id"]), "samples": 1}),
    ("post", "erasures"): ("subject.erase", {"identifiers": ["nobody at all"], "dry_run": True}),
    ("post", "api-keys"): ("view", {"name": "mine", "scopes": ["training:view"]}),
    ("delete", "api-keys/<uuid:pk>"): ("view", {}),
    ("patch", "organizations/<uuid:pk>"): ("members.edit", {"second_factor": False}),
    ("post", "evolutions"): ("playbook.evolve", {"agent": "router-7"}),
    ("post", "evolutions/<uuid:pk>/retry"): ("playbook.evolve", {}),
    ("post", "evolutions/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("post", "evaluations/candidates"): (
        "evaluate",
        lambda values: {"training_job_id": str(values["job_id"]), "lessons": ["Read the table."]},
    ),
    ("post", "evaluations/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("post", "evaluations/<uuid:pk>/resume"): ("run.resume", {}),
    ("post", "jobs/<uuid:pk>/pause"): ("run.pause", {}),
    ("post", "jobs/<uuid:pk>/resume"): ("run.resume", {}),
    ("post", "jobs/<uuid:pk>/cancel"): ("run.cancel", {}),
    ("patch", "members/<int:pk>"): ("members.edit", {"role": "developer"}),
    ("delete", "members/<int:pk>/second-factor"): ("members.edit", {}),
    ("delete", "members/<int:pk>"): ("members.edit", {}),
    ("post", "invitations"): ("members.edit", {"email": "new@example.org", "role": "stakeholder"}),
    ("post", "invitations/<uuid:pk>/resend"): ("members.edit", {}),
    ("delete", "invitations/<uuid:pk>"): ("members.edit", {}),
    ("delete", "agents/<str:agent>"): ("agent.edit", {}),
    ("delete", "playbooks/<str:agent>"): ("playbook.edit", {}),
    ("post", "rewards/validate"): ("view", {"reward": "composite"}),
    ("post", "rewards/run"): ("data.view", {"reward": "composite", "agent": "router-7", "limit": 5}),
    ("post", "budgets"): ("budget.edit", {"limit_usd": 500}),
    ("patch", "budgets/<int:pk>"): ("budget.edit", {"limit_usd": 500}),
    ("post", "prices"): ("price.edit", {"model": "small", "input_usd": 1, "output_usd": 2}),
}
MORE = {  # parameters besides the job
    "training.go_on": {"max_budget_usd": 1},
    "training.try_candidate": {"lessons": ["Read the table."], "wait_seconds": 0},
}
RPC: dict[str, tuple[str, Any]] = {
    "training.start_grpo": ("run.start", {"agent_id": "router-7", "config": {"n_iterations": 1}}),
    "training.get_status": ("view", "job"),
    "training.pause": ("run.pause", "job"),
    "training.resume": ("run.resume", "job"),
    "training.go_on": ("run.start", "job"),
    "training.try_candidate": ("evaluate", "job"),
    "training.cancel": ("run.cancel", "job"),
    "training.evaluate": ("evaluate", {"agent_id": "router-7", "wait_seconds": 0}),
    "training.export_trajectories": ("export", "job"),
    "training.list_jobs": ("view", {"agent_id": "router-7"}),
    "rpc.discover": ("view", {}),
}


@pytest.fixture(autouse=True)
def short_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker runs here, so nothing is lost by not waiting half a second for its answer on each page of workers."""
    monkeypatch.setattr(workers, "PING_SECONDS", 0.01)


@pytest.fixture
def run(operator: Actor, acme: Organization, olivia: Any) -> TrainingRun:
    agent = factories.AgentFactory(organization=acme, created_by=olivia, name="Zanzibar router", slug="router-7")
    return lived_run(operator, agent)


@pytest.fixture
def values(run: TrainingRun, operator: Actor) -> dict[str, Any]:
    """Real ids of acme's rows, by the name of the parameter."""
    dataset = dataset_create(operator, name="swahili-numbers", rows=ROWS)
    evaluation = evaluation_start(operator, run=run, samples=1)
    lesson = {"category": "learnings", "content": "Zanzibar is an island."}
    playbook = playbook_create(operator, agent=run.agent, initial_sections=[lesson])
    delta = delta_waiting(playbook, content="Zanzibar has no trams.")
    evolution = evolution_failed(playbook)
    execution = ExecutionTrace.objects.create(
        organization=run.organization, agent=run.agent, inputs={"place": "Zanzibar"}, duration_ms=1.0, success=True
    )
    endpoint = factories.ModelEndpointFactory(organization=run.organization, name="Zanzibar models")
    EndpointServer.objects.create(organization=run.organization, endpoint=endpoint, place="", source="zanzibar", port=1)
    server = factories.ToolServerFactory(organization=run.organization, name="zanzibar-tools")
    pack = factories.PromptPackFactory(organization=run.organization, name="zanzibar-pack", system="Zanzibar prompt")
    lesson = factories.ExperienceFactory(agent=run.agent, summary="When in Zanzibar, ask twice.")
    AuditStream.objects.create(organization=run.organization, url="http://127.0.0.1:1/zanzibar")
    release = Release.objects.create(
        organization=run.organization,
        agent=run.agent,
        number=1,
        source="agent",
        bundle=Bundle(runtime="llm", system="You guide tourists in Zanzibar.").as_json(),
    )
    production = factories.served(release)
    suite_run = suite_run_stored(operator, release, name="zanzibar-suite", query="Who rules Zanzibar?")
    survival = survival_run_stored(operator, release, run, endpoint, model="Zanzibar-7b")
    trajectory = TrajectoryRecord.objects.filter(job_id=run.job_id).first()
    assert trajectory is not None
    note = annotation_create(operator, trajectory, comment="Ask in Zanzibar.")
    graded = graded_set(operator, run.job_id)
    sample = sample_draw(operator, graded, scorers_of(graded)[0][0])
    Caller(operator.user)  # a key of hers
    stranger = factories.UserFactory(username="zanzibar-member")
    passkey = Passkey.objects.create(user=operator.user, name="Zanzibar phone", credential_id="c", key=b"k")
    member = factories.MembershipFactory(organization=run.organization, user=stranger, role=Role.DEVELOPER)
    invitation = Invitation.objects.create(
        organization=run.organization,
        email="zanzibar@example.org",
        digest="d",
        sent_at=timezone.now() - timedelta(days=1),
        expires_at=timezone.now() + timedelta(days=1),
    )
    share_create(operator, run.job)
    link = ShareLink.objects.get(job=run.job)
    hooked = factories.WebhookDeliveryFactory(organization=run.organization, endpoint__name="Zanzibar hook")
    comment = comment_add(operator, run, "As in Zanzibar.")
    job_describe(operator, run, note="Of Zanzibar.", tags=["Zanzibar"])
    view = SavedView.objects.create(
        organization=run.organization, person=operator.user, page="training:jobs", name="Zanzibar's", shared=True
    )
    checkpoint = checkpoint_of_run(run)
    budget = Budget.objects.get(owner_id=run.job_id)
    alert = BudgetAlert.objects.create(
        budget=budget, threshold=75, limit_micros=1, spent_micros=1, error="Zanzibar is away."
    )
    price = ModelPrice.objects.create(
        organization=run.organization, model="Zanzibar-7b", input_micros=1, output_micros=1, valid_from="2026-01-01"
    )
    erasure = Erasure.objects.create(organization=run.organization, digests=[], found={}, left={}, notes=["Zanzibar"])
    turn = LoopTurn.objects.get()
    publisher = factories.EventCredentialFactory(agent=run.agent, name="Zanzibar program")
    training = training_request(operator, {"training_config": {"algorithm": "dpo", "base_model": "Zanzibar-7b"}})
    archive = factories.TrajectoryArchiveFactory(organization=run.organization, agent=run.agent)
    export = factories.TrajectoryExportFactory(
        organization=run.organization, by=operator.user, filters={"search": "Zanzibar"}
    )
    letter = factories.DeadLetterFactory(organization=run.organization, detail="No agent Zanzibar is registered.")
    return {
        "ref": run.agent.slug,
        "agent": run.agent.slug,
        "agent_id": run.agent_id,
        "job_id": run.job_id,
        "job": run.job_id,
        "evaluation": evaluation.job_id,
        "endpoint_id": endpoint.id,
        "server_id": server.id,
        "pack_id": pack.id,
        "release_id": release.id,
        "suite_id": suite_run.version.suite_id,
        "suite_run": suite_run.job_id,
        "survival_run": survival.job_id,
        "run": suite_run.job_id,
        "deployment_id": production.deployment_id,
        "turn_id": turn.id,
        "turn": turn.id,
        "experience_id": lesson.id,
        "handle": "s1",
        "delta_id": delta.id,
        "trace_id": execution.id,
        "production_trace_id": production.id,
        "evolution": evolution.job_id,
        "trajectory_id": trajectory.id,
        "annotation_id": note.id,
        "sample_id": sample.id,
        "checkpoint_id": checkpoint.id,
        "dataset": dataset.id,
        "dataset_id": dataset.id,
        "iteration": trajectory.iteration,
        "scenario": trajectory.scenario,
        "token": "not-the-token",
        "person": "MQ",
        "key_id": ApiKey.objects.filter(user=operator.user).latest("created_at").id,
        "member_id": member.id,
        "passkey_id": passkey.id,
        "invitation_id": invitation.id,
        "link_id": link.id,
        "share_link_id": link.id,
        "webhook_id": hooked.endpoint_id,
        "delivery_id": hooked.pk,
        "view_id": view.id,
        "comment": comment.id,
        "comment_id": comment.id,
        "link": link.id,
        "budget": budget.id,
        "budget_id": budget.id,
        "training_job": training.job_id,
        "credential_id": publisher.id,
        "letter_id": letter.id,
        "archive_id": archive.id,
        "export_id": export.pk,
        "organization_id": run.organization_id,
        "key": "training",
        "chart": "agents",
        "pk": {
            "event-publishers": publisher.id,
            "organizations": run.organization_id,
            "alerts": alert.id,
            "prices": price.id,
            "erasures": erasure.id,
            "audit-events": AuditEvent.objects.filter(organization_id=run.organization_id).latest("at").id,
            "executions": execution.id,
            "share-links": link.id,
            "saved-views": view.id,
            "webhooks": hooked.endpoint_id,
            "webhook-deliveries": hooked.pk,
            "training": training.training_job_id,
            "dead-letters": letter.id,
            "archives": archive.id,
            "annotations": note.id,
            "exports": export.pk,
            "datasets": dataset.id,
            "members": member.id,
            "invitations": invitation.id,
            "model-endpoints": endpoint.id,
            "tool-servers": server.id,
            "prompt-packs": pack.id,
            "releases": release.id,
            "deployments": production.deployment_id,
            "loop-turns": turn.id,
            "traces": production.id,
            "feedback": production.feedback.get().id,
            "suites": suite_run.version.suite_id,
            "suite-runs": suite_run.job_id,
            "survival-runs": survival.job_id,
            "reviews": delta.id,
            "evolutions": evolution.job_id,
            "experiences": lesson.id,
            "training-jobs": run.job_id,
            "jobs": run.job_id,
            "trajectories": trajectory.id,
            "checkpoints": checkpoint.id,
            "evaluations": evaluation.job_id,
            "api-keys": ApiKey.objects.get(user=operator.user).id,
            "budgets": budget.id,
        },
    }


def thumbs_up(values: dict[str, Any]) -> dict[str, Any]:
    return {"trace": str(values["production_trace_id"]), "metric": "thumbs", "value": "up"}


def address(route: str, values: dict[str, Any]) -> str:
    """The real address behind a route."""
    plain = route.removeprefix("api/v1/")
    own = dict(values)
    if plain.startswith("evaluations/"):
        own["job_id"] = values["evaluation"]
    if plain.startswith("exports/"):
        own["job_id"] = values["export_id"]
    if plain.startswith("suite-runs/"):
        own["job_id"] = values["suite_run"]
    if plain.startswith("survival-runs/"):
        own["job_id"] = values["survival_run"]
    if plain.startswith("events/trainings/"):
        own["job_id"] = values["training_job"]
    if plain.startswith("evolutions/"):
        own["job_id"] = values["evolution"]
    if "pk" in parameters(route):
        own["pk"] = values["pk"][plain.split("/")[0]]
    return filled(route, own)


def requests_of(route: str, session: Client, key: Caller, methods: Sequence[str]) -> Iterator[tuple[str, Ask]]:
    """Each method, and what sends it: a page by session with the two methods that pages take, a REST address by key.
    In `make test-all` every address is asked with every method by both."""
    by_session = lambda method: getattr(session, method)  # noqa: E731
    by_key = lambda method: partial(getattr(key.client, method), headers=key.headers)  # noqa: E731
    rest = of_rest(route)
    for method in methods:
        if rounds(not rest and method in {"get", "post"}, True):
            yield method, by_session(method)
        if rounds(rest, True):
            yield method, by_key(method)


# Tokens of forms and nonces: one in a quarter of a million spells a name of four letters.
RANDOM = re.compile(r'nonce="[^"]*"|\b[A-Za-z0-9]{64}\b')


def leaks(response: Any) -> list[str]:
    body = b"".join(response) if getattr(response, "streaming", False) else response.content
    text = RANDOM.sub("", body.decode("utf-8", "replace"))
    return [secret for secret in SECRETS if secret in text]


# -- the table is whole ------------------------------------------------------------------------------------------------


def test_each_named_address_is_there() -> None:
    rest = {f"api/v1/{route}" for _, route in REST_WRITES}
    named = PUBLIC | SHARED | INVITED | OWN | OWN_ROW | set(READS) | set(CONSOLE_WRITES) | rest
    assert named - set(all_routes()) == set(), "an address that is gone: take it out of the table"


def test_every_rest_write_is_in_the_table() -> None:
    there = set()
    for route, pattern in routes():
        actions = getattr(pattern.callback, "actions", None) or {}
        if of_rest(route):
            there |= {(method, route.removeprefix("api/v1/")) for method in actions if method not in {"get", "head"}}
    assert there == set(REST_WRITES)


def test_every_method_and_socket_is_in_the_table() -> None:
    assert set(RPC) == set(METHODS)
    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == {
        "ws/jobs/<str:job_id>/",
        "ws/shared/<str:token>/",
    }


# -- strangers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rounds
def test_no_interface_opens_without_an_account(values: dict[str, Any]) -> None:
    client = Client(raise_request_exception=False)
    for route, _ in one_in(2, list(routes())):
        if route in PUBLIC or "(" in route:
            continue
        path = address(route, values) if not of_admin(route) else admin_path(route)
        for method in METHODS_OF_HTTP:
            response = getattr(client, method)(path, content_type="application/json")
            where = (method, path, response.status_code)
            if route in SHARED | INVITED:
                assert response.status_code in {404, 405}, where
            elif response.status_code == 302:
                first = "/sign-in/?next=" if method == "get" else "/sign-in/"
                assert response["Location"].startswith((first, "/admin/login/")), (where, response["Location"])
            else:
                # A view that needs no sign-in must refuse the method itself.
                assert response.status_code in {401, 403, 404, 405}, where
            assert leaks(response) == [], where


def admin_path(route: str) -> str:
    named = {"object_id": "1", "app_label": "jobs", "content_type_id": "1", "id": "1", "url": "x", "pk": "1"}
    return filled(route.replace("^", "").replace("$", ""), {**named, **dict.fromkeys(parameters(route), "1")})


def snapshot() -> dict[str, Any]:
    """The values that a stranger could have changed."""
    return {
        "jobs": list(Job.objects.order_by("id").values_list("id", "status", "requested", "attempt")),
        "members": list(Membership.objects.filter(organization__slug="acme").order_by("id").values_list("id", "role")),
        "invitations": list(Invitation.objects.filter(organization__slug="acme").values_list("id", "outcome")),
        "agents": list(Agent.objects.order_by("id").values_list("id", "name", "slug", "description", "archived_at")),
        "datasets": Dataset.objects.count(),
        "tags": list(PolicyCheckpoint.objects.order_by("id").values_list("id", "tags", "promoted_at")),
        "notes": list(TrainingRun.objects.order_by("pk").values_list("pk", "note", "tags")),
        "comments": list(JobComment.objects.order_by("id").values_list("id", "text")),
        "evaluations": EvaluationRun.objects.count(),
        "webhooks": list(WebhookEndpoint.objects.filter(user=None).values_list("id", "name", "on", "types")),
        "views": list(SavedView.objects.filter(organization__slug="acme").values_list("id", "name", "shared", "asked")),
        "links": list(ShareLink.objects.values_list("id", "revoked_at")),
        "keys": list(ApiKey.objects.filter(user__username="olivia").values_list("id", "revoked_at")),
        "trajectories": TrajectoryRecord.objects.count(),
        "playbooks": list(Playbook.objects.order_by("id").values_list("id", "version")),
        "executions": ExecutionTrace.objects.filter(organization__slug="acme").count(),
        "limits": BudgetLimit.objects.filter(organization__slug="acme").count(),
        "prices": ModelPrice.objects.exclude(organization__slug="elsewhere").count(),
        "lessons": list(Experience.objects.order_by("id").values_list("id", "status", "version", "summary")),
        "changes": list(ContextDelta.objects.order_by("id").values_list("id", "state")),
        "annotations": list(Annotation.objects.order_by("id").values_list("id", "label", "score", "comment")),
        "feedback": list(Feedback.objects.order_by("id").values_list("id", "metric", "value", "text")),
        "switches": list(Playbook.objects.order_by("id").values_list("id", "agent__evolves")),
        "packs": list(PromptPack.objects.filter(organization__slug="acme").values_list("id", "stamp", "archived_at")),
        "endpoints": list(
            ModelEndpoint.objects.filter(organization__slug="acme").values_list("id", "name", "model", "archived_at")
        ),
    }


def rows_written() -> int:
    """The number of rows that this transaction wrote, also rows that were taken back. It costs less than a snapshot."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables")
        return int(cursor.fetchone()[0])


# An admin elsewhere may do all that an operator elsewhere may.
@pytest.mark.rounds
@pytest.mark.parametrize("role", [Role.ADMIN, pytest.param(Role.OPERATOR, marks=AGAIN)])
def test_a_stranger_of_another_organisation_learns_and_changes_nothing(
    values: dict[str, Any], charlie: Any, role: str
) -> None:
    charlie.memberships.update(role=role)
    key = Caller(charlie)
    session = Client(raise_request_exception=False)
    session.force_login(charlie)
    before = snapshot()
    for route in one_in(6, all_routes()):
        if route in PUBLIC | OWN_ROW or of_admin(route):
            continue
        path = address(route, values)
        body = {"agent_id": str(values["agent_id"]), "agent": "router-7", "training_job_id": str(values["job_id"])}
        for method, ask in requests_of(route, session, key, METHODS_OF_HTTP):
            response = ask(path, **({} if method == "get" else {"data": body, "content_type": "application/json"}))
            where = (method, path, response.status_code)
            assert response.status_code < 500, where
            if set(parameters(route)) - NO_ROW and method == "get":
                # A session opens no address for services.
                refused = {401} if route in INTERNAL else set()
                assert response.status_code in {302, 404, 405} | refused, where
            own = route in OWN and response.status_code == 302
            assert response.status_code != 302 or own or response["Location"].startswith("/sign-in/"), where
            assert leaks(response) == [], (where, response.content.decode(errors="replace"))
    after = snapshot()
    own = set(Agent.objects.filter(organization__slug="elsewhere").values_list("id", flat=True))
    after["agents"] = [row for row in after["agents"] if row[0] not in own]
    # Their own encryption, which an admin elsewhere may switch on.
    jobs = set(Job.objects.filter(organization__slug="elsewhere", kind="encryption").values_list("id", flat=True))
    after["jobs"] = [row for row in after["jobs"] if row[0] not in jobs]
    assert after == before


def test_a_stranger_who_names_our_rows_in_the_query_finds_nothing(values: dict[str, Any], charlie: Any) -> None:
    stranger = Caller(charlie)
    job, agent, checkpoint = str(values["job_id"]), "router-7", str(values["checkpoint_id"])
    for path, query in (
        ("trajectories", {"job": job}),
        ("trajectories", {"agent": agent}),
        ("trajectories", {"search": "question"}),
        ("trajectories/export", {"job": job}),
        ("trajectories/export", {"agent": agent, "format": "csv"}),
        ("trajectories/export", {"format": "json"}),
        ("training-jobs", {"agent": agent}),
        ("training-jobs", {"search": "Zanzibar"}),
        ("checkpoints", {"job": job}),
        ("checkpoints", {"agent": agent}),
        ("checkpoints/compare", {"a": checkpoint, "b": checkpoint}),
        ("evaluations", {"agent": agent}),
        ("evaluations", {"training_job": job}),
        ("evaluations", {"checkpoint": checkpoint}),
    ):
        response = stranger.get(path, **query)
        assert response.status_code in {200, 404}, (path, query, response.status_code)
        assert leaks(response) == [], (path, query)


def test_a_stranger_gets_404_from_every_method(values: dict[str, Any], charlie: Any) -> None:
    stranger = Caller(charlie)
    for method, (_, params) in RPC.items():
        if method == "rpc.discover":  # names no row of anybody
            continue
        asked = {"job_id": str(values["job_id"]), **MORE.get(method, {})} if params == "job" else params
        error = stranger.error(method, asked)
        assert error["code"] == 404, (method, error)
        assert "Zanzibar" not in str(error)


def test_a_link_opens_its_job_and_nothing_else(values: dict[str, Any], run: TrainingRun, operator: Actor) -> None:
    token = share_create(operator, run.job)
    stranger = Client()
    for route in SHARED:
        path = filled(route, {"token": token})
        assert stranger.get(path).status_code == 200
        before = snapshot()
        assert stranger.post(path).status_code in {200, 403, 405}
        assert snapshot() == before
    share_revoke_all(operator, run.job)
    for route in SHARED:
        assert stranger.get(filled(route, {"token": token})).status_code == 404


# -- roles -------------------------------------------------------------------------------------------------------------


LEADS_TO_RAW = r'href="(/(?:trajectories|traces|executions|endpoints|tool-servers)/[^"]*)"'
AGENT = "agents/<str:ref>/"  # shows the address of an agent over HTTP
ADDRESSES = ("http://127.0.0.1:1/v1/hidden", "http://127.0.0.1:2/hidden")  # of an endpoint, of an agent over HTTP


@pytest.mark.rounds
@pytest.mark.parametrize("person", ["stella", "dan"])
def test_raw_rows_are_for_roles_that_work_with_them(
    person: str, values: dict[str, Any], run: TrainingRun, request: pytest.FixtureRequest
) -> None:
    user = request.getfixturevalue(person)
    Agent.objects.filter(pk=run.agent_id).update(runtime="http", url=ADDRESSES[1])
    ModelEndpoint.objects.filter(pk=values["endpoint_id"]).update(base_url=ADDRESSES[0])
    model = ModelPart(endpoint=str(values["endpoint_id"]), base_url=ADDRESSES[0])
    released = Release.objects.create(
        organization=run.organization,
        agent=run.agent,
        number=2,
        source="agent",
        bundle=Bundle("llm", model=model).as_json(),
    )
    values["release_id"] = values["pk"]["releases"] = released.pk
    session = Client(raise_request_exception=False)
    session.force_login(user)
    key = Caller(user)
    works, revealed = person != "stella", set()
    for route in one_in(2, all_routes()) if not works else all_routes():
        if route in PUBLIC | SHARED | INVITED | INTERNAL or of_admin(route) or "(" in route:
            continue
        if works and route not in rounds(RAW | {AGENT}, {*all_routes()}):
            continue
        path = address(route, values)
        if route == "trajectories/compare/":
            path += f"?a={values['trajectory_id']}&b={values['trajectory_id']}"
        if of_rest(route):
            response = key.client.get(path, headers=key.headers)
        else:
            response = session.get(path)
        where = (person, path, response.status_code)
        if route in RAW:
            assert response.status_code in ({200, 404, 405, 409} if works else {403}), where
        body = b"".join(response) if response.streaming else response.content
        revealed |= {one for one in ADDRESSES if one.encode() in body}
        if not works:
            assert not revealed, where
            # Nor does any page lead to what it would refuse.
            assert re.findall(LEADS_TO_RAW, body.decode(errors="replace")) == [], where
    assert revealed == (set(ADDRESSES) if works else set())


def test_a_person_who_may_export_data_may_read_the_data(values: dict[str, Any], stella: Any) -> None:
    stella.memberships.update(can_export=True)
    assert Caller(stella).get("trajectories").json()["results"]
    page = Client()
    page.force_login(stella)
    assert page.get(f"/trajectories/{values['trajectory_id']}/").status_code == 200


@pytest.mark.rounds
def test_a_key_for_services_alone_opens_nothing_else(values: dict[str, Any], adam: Any) -> None:
    service = Caller(adam, ["service:internal"])
    for route in one_in(6, [route for route in all_routes() if of_rest(route)]):
        path = address(route, values)
        for method in METHODS_OF_HTTP:
            sent: dict[str, Any] = {} if method == "get" else {"data": {}, "content_type": "application/json"}
            response = getattr(service.client, method)(path, **sent, headers=service.headers)
            assert response.status_code in {403, 405}, (method, path, response.status_code)
            assert leaks(response) == [], (method, path)
    for method in RPC:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"job_id": str(values["job_id"])}}
        assert service.post("jsonrpc", asked).status_code == 403, method
    inside = service.client.get(f"/internal/ace/playbooks/{values['agent_id']}/status", headers=service.headers)
    assert inside.status_code == 200, inside.content


@pytest.mark.rounds
def test_a_stakeholder_changes_nothing(values: dict[str, Any], stella: Any) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(stella)
    key = Caller(stella)
    before = snapshot()
    for route in one_in(6, all_routes()):
        if of_admin(route) or route in PUBLIC:
            continue
        path = address(route, values)
        for method, ask in requests_of(route, client, key, UNSAFE):
            assert ask(path, content_type="application/json").status_code < 500, (method, path)
    assert snapshot() == before


def test_a_disabled_person_is_refused_everywhere(olivia: Any, values: dict[str, Any]) -> None:
    key = Caller(olivia)
    session = Client()
    session.force_login(olivia)
    olivia.is_active = False
    olivia.save()
    assert key.get("agents").status_code == 401
    assert session.get("/jobs/").status_code == 302


def test_a_former_member_sees_nothing_more(olivia: Any, values: dict[str, Any]) -> None:
    key = Caller(olivia)
    olivia.memberships.all().delete()
    assert key.get(f"training-jobs/{values['job_id']}").status_code in {403, 404}


def test_refusals_leave_no_trace_of_a_change(values: dict[str, Any], charlie: Any) -> None:
    """A refused action is not logged as done."""
    before = AuditEvent.objects.filter(user=charlie).exclude(action__startswith=("person.")).count()
    Caller(charlie).post(f"training-jobs/{values['job_id']}/cancel")
    made = AuditEvent.objects.filter(user=charlie).exclude(action="api_key.created")
    assert made.count() == before


ALL_METHODS = (*METHODS_OF_HTTP, "options", "head", "trace", "brew")


@pytest.mark.rounds
@pytest.mark.parametrize(
    "person", ["adam", *(pytest.param(name, marks=AGAIN) for name in ("stella", "dan", "olivia", "charlie"))]
)
def test_every_rest_address_answers_every_method(
    person: str, values: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Documented or not: never a 5xx, 405 for what the address does not take, and no stranger's row. The walk of roles
    sends what an address takes, so that `make test` sends the rest."""
    caller = Caller(request.getfixturevalue(person))
    for route, pattern in one_in(6, [one for one in routes() if of_rest(one[0])]):
        taken = {*(getattr(pattern.callback, "actions", None) or {}), "head", "options"}
        path = address(route, values)
        for method in rounds([one for one in ALL_METHODS if one == "options" or one not in taken], ALL_METHODS):
            response = caller.client.generic(method.upper(), path, headers=caller.headers)
            where = (person, method, path, response.status_code)
            assert response.status_code < 500, where
            if method == "options":
                assert response.status_code == 200 and response["Allow"], where
            elif method not in taken:
                assert response.status_code == 405, where
            if person == "charlie":
                assert leaks(response) == [], where


# -- sockets -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
async def test_no_socket_opens_for_strangers(run: TrainingRun, charlie: Any, olivia: Any) -> None:
    key = await sync_to_async(Caller)(charlie)
    service = await sync_to_async(Caller)(olivia, ["service:internal"])
    paths = [f"/ws/jobs/{run.job_id}/", f"/ws/jobs/{uuid4()}/", "/ws/jobs/nonsense/", "/ws/shared/nonsense/"]
    for path in paths:
        for headers in (
            {},
            await browser_headers(charlie),
            {"authorization": key.headers["Authorization"]},
            {"authorization": service.headers["Authorization"]},
            {"authorization": "Bearer ac_wrong"},
            {"authorization": "Bearer ey.ey.ey"},
        ):
            one = Socket(path, **headers)
            await one.connect()
            assert await one.closed() == 4404, (path, headers)
