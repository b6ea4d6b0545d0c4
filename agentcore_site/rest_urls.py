"""Every REST address, and the answer to unknown ones."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import Resolver404, URLPattern, URLResolver, path, re_path, resolve
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework.routers import SimpleRouter

from agentcore_site.audit_export.api import AuditEventViewSet, AuditWebhookViewSet
from agentcore_site.console.api import SavedViewViewSet
from agentcore_site.encryption.api import EncryptionViewSet
from agentcore_site.identity.api import (
    ApiKeyViewSet,
    ErasureViewSet,
    MeViewSet,
    RefreshView,
    RevokeView,
    SignInViewSet,
    TokenView,
)
from agentcore_site.identity.api_people import InvitationViewSet, MemberViewSet, OrganizationViewSet
from agentcore_site.jobs.api import JobViewSet, ShareLinkViewSet
from agentcore_site.notices.api import (
    NoticePreferencesViewSet,
    NoticeViewSet,
    WebhookDeliveryViewSet,
    WebhookEndpointViewSet,
)
from agentcore_site.rest import schema  # noqa: F401  (how OpenAPI describes our ways to sign in)
from agentcore_site.rest.problems import body_of
from agentcore_site.views import api
from budgets.api.alerts import AlertViewSet, BudgetSettingsViewSet
from budgets.api.budgets import BudgetViewSet, LedgerViewSet, RaiseRequestViewSet
from budgets.api.prices import PriceViewSet
from budgets.api.usage_files import ReconciliationViewSet
from evaluation.api import EvaluationViewSet
from evaluation.events.api import (
    DeadLetterViewSet,
    EventCredentialViewSet,
    EventPublishingViewSet,
    ModelViewSet,
    TrainingViewSet,
)
from evaluation.events.otlp.api import OtlpLogViewSet, OtlpMetricViewSet, OtlpTraceViewSet
from evaluation.serving.api.deployments import DeploymentViewSet
from evaluation.serving.api.feedback import FeedbackViewSet
from evaluation.serving.api.keys import KeySpendingViewSet
from evaluation.serving.api.loops import LearningLoopViewSet, LoopRowViewSet, LoopTurnViewSet
from evaluation.serving.api.promotions import PromotionViewSet
from evaluation.serving.api.releases import ReleaseViewSet
from evaluation.serving.api.returns import ReturnsViewSet
from evaluation.serving.api.skills import SkillViewSet
from evaluation.serving.api.suites import SuiteResultViewSet, SuiteRunViewSet, SuiteViewSet
from evaluation.serving.api.survival import SurvivalRunViewSet
from evaluation.serving.api.targets import ServingSettingsViewSet, ServingTargetViewSet, SmallEditsViewSet
from evaluation.serving.api.traces import ProductionTraceViewSet
from evaluation.warehouse.api import DashboardViewSet
from experiences.agents.api.agents import AgentViewSet
from experiences.agents.api.endpoints import ModelEndpointViewSet
from experiences.agents.api.environments import EnvironmentViewSet
from experiences.agents.api.tool_servers import ToolServerViewSet, ToolViewSet
from experiences.lessons.api.lessons import ExperienceViewSet
from experiences.lessons.api.packs import PromptPackViewSet
from experiences.playbooks.api.evolutions import EvolutionViewSet, ExecutionViewSet
from experiences.playbooks.api.items import PlaybookItemViewSet
from experiences.playbooks.api.playbooks import PlaybookViewSet, ReviewViewSet
from experiences.trajectories.annotations.api import AnnotationViewSet
from experiences.trajectories.api.rewards import RewardCheckViewSet, RewardTryViewSet, RewardViewSet
from experiences.trajectories.api.trajectories import TrajectoryViewSet
from experiences.trajectories.archive.api import ArchiveRuleViewSet, ArchiveViewSet, StorageViewSet
from experiences.trajectories.exports.api import ExportViewSet
from training.api.checkpoints import CheckpointViewSet
from training.api.datasets import DatasetViewSet, RowViewSet
from training.api.jobs import TrainingJobViewSet
from training.api.settings import ConfigSchemaViewSet, PresetViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("agents", AgentViewSet, basename="agent")
router.register("model-endpoints", ModelEndpointViewSet, basename="model-endpoint")
router.register("tool-servers", ToolServerViewSet, basename="tool-server")
router.register("experiences", ExperienceViewSet, basename="experience")
router.register("playbooks", PlaybookViewSet, basename="playbook")
router.register("evolutions", EvolutionViewSet, basename="evolution")
router.register("executions", ExecutionViewSet, basename="execution")
router.register("reviews", ReviewViewSet, basename="review")
router.register("skills", SkillViewSet, basename="skill")
router.register("prompt-packs", PromptPackViewSet, basename="prompt-pack")
router.register("datasets", DatasetViewSet, basename="dataset")
router.register("training-jobs", TrainingJobViewSet, basename="training-job")
router.register("jobs", JobViewSet, basename="job")
router.register("trajectories", TrajectoryViewSet, basename="trajectory")
router.register("annotations", AnnotationViewSet, basename="annotation")
router.register("exports", ExportViewSet, basename="export")
router.register("archives", ArchiveViewSet, basename="archive")
router.register("archive-rules", ArchiveRuleViewSet, basename="archive-rule")
router.register("checkpoints", CheckpointViewSet, basename="checkpoint")
router.register("evaluations", EvaluationViewSet, basename="evaluation")
router.register("deployments", DeploymentViewSet, basename="deployment")
router.register("loop-turns", LoopTurnViewSet, basename="loop-turn")
router.register("releases", ReleaseViewSet, basename="release")
router.register("traces", ProductionTraceViewSet, basename="production-trace")
router.register("key-spending", KeySpendingViewSet, basename="key-spending")
router.register("feedback", FeedbackViewSet, basename="feedback")
router.register("suites", SuiteViewSet, basename="suite")
router.register("suite-runs", SuiteRunViewSet, basename="suite-run")
router.register("survival-runs", SurvivalRunViewSet, basename="survival-run")
router.register("budgets", BudgetViewSet, basename="budget")
router.register("alerts", AlertViewSet, basename="alert")
router.register("prices", PriceViewSet, basename="price")
router.register("share-links", ShareLinkViewSet, basename="share-link")
router.register("webhooks", WebhookEndpointViewSet, basename="webhook")
router.register("webhook-deliveries", WebhookDeliveryViewSet, basename="webhook-delivery")
router.register("saved-views", SavedViewViewSet, basename="saved-view")
router.register("notices", NoticeViewSet, basename="notice")
router.register("audit-events", AuditEventViewSet, basename="audit-event")
router.register("erasures", ErasureViewSet, basename="erasure")
router.register("organizations", OrganizationViewSet, basename="organization")
router.register("members", MemberViewSet, basename="member")
router.register("invitations", InvitationViewSet, basename="invitation")
router.register("api-keys", ApiKeyViewSet, basename="api-key")

GET: dict[str, Any] = {"get": "retrieve"}
NOTHING = "There is nothing under this address. The addresses are listed in /api/v1/schema/."


@csrf_exempt  # the view that answers in its place checks for itself
def fallback(request: HttpRequest, rest: str = "") -> HttpResponseBase:
    """An address with a slash too many is answered as if it had none; everything else is a 404 in JSON."""
    if request.path_info.endswith("/"):
        try:
            match = resolve(request.path_info.rstrip("/"))
        except Resolver404:
            match = None
        if match is not None and match.func is not fallback:
            request.resolver_match = match
            view = async_to_sync(match.func) if iscoroutinefunction(match.func) else match.func
            answer: HttpResponseBase = view(request, *match.args, **match.kwargs)
            return answer
    return not_found(request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """400 from outside of any view, e.g. for a host that is not ours."""
    if not request.path_info.startswith(("/api/", "/internal/")):
        return defaults.bad_request(request, exception)
    detail = "The request can't be understood: its host or its form is not accepted here."
    body = body_of(400, "Invalid request", detail, request_id=getattr(request, "request_id", ""))
    return JsonResponse(body, status=400, content_type="application/problem+json")


def not_found(request: HttpRequest) -> HttpResponse:
    body = body_of(404, "Not found", NOTHING, request_id=getattr(request, "request_id", ""))
    return JsonResponse(body, status=404, content_type="application/problem+json")


urlpatterns: list[URLPattern | URLResolver] = [
    path("", api.index, name="index"),
    path("docs/", api.docs, name="docs"),
    path("docs/<slug:tag>/", api.docs_of, name="docs_of"),
    path("schema/", api.SchemaView.as_view(), name="schema"),
    path("token", TokenView.as_view(), name="token"),
    path("token/refresh", RefreshView.as_view(), name="token-refresh"),
    path("token/revoke", RevokeView.as_view(), name="token-revoke"),
    path("me", MeViewSet.as_view(GET), name="me"),
    path("me/sessions", SignInViewSet.as_view({"get": "list"}), name="sign-ins"),
    path("me/sessions/<uuid:pk>", SignInViewSet.as_view({"delete": "destroy"}), name="sign-in-end"),
    path("me/sign-out-everywhere", MeViewSet.as_view({"post": "sign_out"}), name="sign-out-everywhere"),
    path("environments", EnvironmentViewSet.as_view(GET), name="environments"),
    path("storage", StorageViewSet.as_view(GET), name="storage"),
    path("tools", ToolViewSet.as_view(GET), name="tools"),
    path("rewards", RewardViewSet.as_view(GET), name="rewards"),
    path("rewards/validate", RewardCheckViewSet.as_view({"post": "create"}), name="rewards-validate"),
    path("rewards/run", RewardTryViewSet.as_view({"post": "create"}), name="rewards-run"),
    path("presets", PresetViewSet.as_view(GET), name="presets"),
    path("config-schema", ConfigSchemaViewSet.as_view(GET), name="config-schema"),
    path("datasets/<uuid:dataset>/rows", RowViewSet.as_view({"get": "list"}), name="dataset-rows"),
    path("suite-runs/<uuid:run>/results", SuiteResultViewSet.as_view({"get": "list"}), name="suite-run-results"),
    path(
        "suite-runs/<uuid:run>/results/export", SuiteResultViewSet.as_view({"get": "export"}), name="suite-run-export"
    ),
    path("playbooks/<str:agent>/items", PlaybookItemViewSet.as_view({"post": "create"}), name="playbook-items"),
    path(
        "playbooks/<str:agent>/items/<slug:handle>",
        PlaybookItemViewSet.as_view(GET | {"patch": "partial_update", "delete": "destroy"}),
        name="playbook-item",
    ),
    path(
        "playbooks/<str:agent>/items/<slug:handle>/revert",
        PlaybookItemViewSet.as_view({"post": "revert"}),
        name="playbook-item-revert",
    ),
    path(
        "notice-preferences",
        NoticePreferencesViewSet.as_view(GET | {"patch": "partial_update"}),
        name="notice-preferences",
    ),
    path("budget-settings", BudgetSettingsViewSet.as_view(GET | {"patch": "partial_update"}), name="budget-settings"),
    path("budget-settings/secret", BudgetSettingsViewSet.as_view({"post": "secret"}), name="budget-secret"),
    path("jobs/<uuid:job>/raise-request", RaiseRequestViewSet.as_view({"post": "create"}), name="job-raise-request"),
    path(
        "audit-webhook",
        AuditWebhookViewSet.as_view(
            GET | {"post": "create", "patch": "partial_update", "delete": "destroy"},
        ),
        name="audit-webhook",
    ),
    path("audit-webhook/test", AuditWebhookViewSet.as_view({"post": "test"}), name="audit-webhook-test"),
    path("audit-webhook/restart", AuditWebhookViewSet.as_view({"post": "restart"}), name="audit-webhook-restart"),
    path("audit-webhook/secret", AuditWebhookViewSet.as_view({"post": "secret"}), name="audit-webhook-secret"),
    path("encryption", EncryptionViewSet.as_view(GET), name="encryption"),
    *(
        path(f"encryption/{action}", EncryptionViewSet.as_view({"post": action}), name=f"encryption-{action}")
        for action in ("rotate", "end", "move", "stop")
    ),
    path(
        "agents/<str:agent>/serving",
        ServingSettingsViewSet.as_view(GET | {"patch": "partial_update"}),
        name="agent-serving",
    ),
    path("agents/<str:agent>/serving/back", ServingTargetViewSet.as_view({"post": "back"}), name="serving-back"),
    path("budgets/reconcile", ReconciliationViewSet.as_view({"post": "reconcile"}), name="budget-reconcile"),
    path("budgets/<int:budget>/ledger", LedgerViewSet.as_view({"get": "list"}), name="budget-ledger"),
    path("checkpoints/<uuid:pk>/promote", PromotionViewSet.as_view({"post": "promote"}), name="promote"),
    path(
        "agents/<str:agent>/small-edits",
        SmallEditsViewSet.as_view(GET | {"patch": "partial_update"}),
        name="agent-small-edits",
    ),
    path("agents/<str:agent>/tensorzero", ServingTargetViewSet.as_view(GET), name="agent-tensorzero"),
    path("agents/<str:agent>/loop", LearningLoopViewSet.as_view(GET | {"patch": "partial_update"}), name="agent-loop"),
    path("agents/<str:agent>/returns", ReturnsViewSet.as_view(GET), name="agent-returns"),
    path("agents/<str:agent>/loop/start", LearningLoopViewSet.as_view({"post": "start"}), name="agent-loop-start"),
    path(
        "loop-turns/<uuid:turn>/rows", LoopRowViewSet.as_view({"get": "list", "post": "create"}), name="loop-turn-rows"
    ),
    path("agents/<str:agent>/roll-back", PromotionViewSet.as_view({"post": "roll_back"}), name="roll-back"),
    path(
        "event-publishing",
        EventPublishingViewSet.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="event-publishing",
    ),
    path(
        "event-publishers", EventCredentialViewSet.as_view({"get": "list", "post": "create"}), name="event-publishers"
    ),
    path(
        "event-publishers/<uuid:pk>",
        EventCredentialViewSet.as_view(GET | {"delete": "destroy"}),
        name="event-publisher",
    ),
    path("training/start", TrainingViewSet.as_view({"post": "create"}), name="training-start"),
    path("training/<str:pk>/status", TrainingViewSet.as_view({"get": "status"}), name="training-status"),
    path("training/<str:pk>/cancel", TrainingViewSet.as_view({"post": "cancel"}), name="training-cancel"),
    path("models", ModelViewSet.as_view({"get": "list"}), name="models"),
    path("dead-letters", DeadLetterViewSet.as_view({"get": "list"}), name="dead-letters"),
    path("dead-letters/<uuid:pk>", DeadLetterViewSet.as_view({"get": "retrieve"}), name="dead-letter"),
    path("dead-letters/<uuid:pk>/retry", DeadLetterViewSet.as_view({"post": "retry"}), name="dead-letter-retry"),
    path("dead-letters/<uuid:pk>/dismiss", DeadLetterViewSet.as_view({"post": "dismiss"}), name="dead-letter-dismiss"),
    path("dashboards/<slug:key>", DashboardViewSet.as_view(GET), name="dashboard"),
    path("otlp/v1/traces", OtlpTraceViewSet.as_view({"post": "create"}), name="otlp-traces"),
    path("otlp/v1/logs", OtlpLogViewSet.as_view({"post": "create"}), name="otlp-logs"),
    path("otlp/v1/metrics", OtlpMetricViewSet.as_view({"post": "create"}), name="otlp-metrics"),
    *router.urls,
]

unknown = re_path(r"^api/(?P<rest>.*)$", fallback, name="api-unknown")
