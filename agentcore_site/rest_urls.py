"""Every REST address, and the answer to unknown ones."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import Resolver404, URLPattern, URLResolver, path, re_path, resolve
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from agentcore_site.jobs.api import JobDoor
from agentcore_site.rest.problems import body_of
from agentcore_site.tenancy.api import ApiKeyDoor, ErasureDoor, MeDoor, RefreshView, RevokeView, TokenView
from agentcore_site.tenancy.api_people import InvitationDoor, MemberDoor
from budgets.api import BudgetDoor, LedgerDoor, PriceDoor
from evaluation.api import EvaluationDoor
from experiences.agents.api.agents import AgentDoor
from experiences.agents.api.endpoints import ModelEndpointDoor
from experiences.agents.api.environments import EnvironmentDoor
from experiences.agents.api.tool_servers import ToolDoor, ToolServerDoor
from experiences.lessons.api.lessons import ExperienceDoor
from experiences.lessons.api.packs import PromptPackDoor
from experiences.playbooks.api.evolutions import EvolutionViewSet
from experiences.playbooks.api.playbooks import PlaybookDoor, ReviewDoor
from experiences.trajectories.api.rewards import RewardCheckDoor, RewardDoor, RewardTryDoor
from experiences.trajectories.api.trajectories import TrajectoryDoor
from training.api.checkpoints import CheckpointDoor
from training.api.datasets import DatasetDoor, RowDoor
from training.api.jobs import TrainingJobDoor
from training.api.settings import ConfigSchemaDoor, PresetDoor

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("agents", AgentDoor, basename="agent")
router.register("model-endpoints", ModelEndpointDoor, basename="model-endpoint")
router.register("tool-servers", ToolServerDoor, basename="tool-server")
router.register("experiences", ExperienceDoor, basename="experience")
router.register("playbooks", PlaybookDoor, basename="playbook")
router.register("evolutions", EvolutionViewSet, basename="evolution")
router.register("reviews", ReviewDoor, basename="review")
router.register("prompt-packs", PromptPackDoor, basename="prompt-pack")
router.register("datasets", DatasetDoor, basename="dataset")
router.register("training-jobs", TrainingJobDoor, basename="training-job")
router.register("jobs", JobDoor, basename="job")
router.register("trajectories", TrajectoryDoor, basename="trajectory")
router.register("checkpoints", CheckpointDoor, basename="checkpoint")
router.register("evaluations", EvaluationDoor, basename="evaluation")
router.register("budgets", BudgetDoor, basename="budget")
router.register("prices", PriceDoor, basename="price")
router.register("erasures", ErasureDoor, basename="erasure")
router.register("members", MemberDoor, basename="member")
router.register("invitations", InvitationDoor, basename="invitation")
router.register("api-keys", ApiKeyDoor, basename="api-key")

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
    if not request.path.startswith(("/api/", "/internal/")):
        return defaults.bad_request(request, exception)
    detail = "The request can't be understood: its host or its form is not accepted here."
    body = body_of(400, "Invalid request", detail, request_id=getattr(request, "request_id", ""))
    return JsonResponse(body, status=400, content_type="application/problem+json")


def not_found(request: HttpRequest) -> HttpResponse:
    body = body_of(404, "Not found", NOTHING, request_id=getattr(request, "request_id", ""))
    return JsonResponse(body, status=404, content_type="application/problem+json")


urlpatterns: list[URLPattern | URLResolver] = [
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("token", TokenView.as_view(), name="token"),
    path("token/refresh", RefreshView.as_view(), name="token-refresh"),
    path("token/revoke", RevokeView.as_view(), name="token-revoke"),
    path("me", MeDoor.as_view(GET), name="me"),
    path("me/sign-out-everywhere", MeDoor.as_view({"post": "sign_out"}), name="sign-out-everywhere"),
    path("environments", EnvironmentDoor.as_view(GET), name="environments"),
    path("tools", ToolDoor.as_view(GET), name="tools"),
    path("rewards", RewardDoor.as_view(GET), name="rewards"),
    path("rewards/validate", RewardCheckDoor.as_view({"post": "create"}), name="rewards-validate"),
    path("rewards/run", RewardTryDoor.as_view({"post": "create"}), name="rewards-run"),
    path("presets", PresetDoor.as_view(GET), name="presets"),
    path("config-schema", ConfigSchemaDoor.as_view(GET), name="config-schema"),
    path("datasets/<uuid:dataset>/rows", RowDoor.as_view({"get": "list"}), name="dataset-rows"),
    path("budgets/<int:budget>/ledger", LedgerDoor.as_view({"get": "list"}), name="budget-ledger"),
    *router.urls,
]

unknown = re_path(r"^api/(?P<rest>.*)$", fallback, name="api-unknown")
