"""Plans from rows: of an agent's current deployment, of a release alone, and either as TensorZero's configuration."""

from __future__ import annotations

from agentcore_site.lib.errors import Conflict
from evaluation.serving.adapters.base import AdapterTarget, AppliedPlan, DeploymentArm, DeploymentPlan
from evaluation.serving.adapters.registry import serving_adapters
from evaluation.serving.models import LIVE, AgentServing, Deployment, DeploymentStrategy, Release
from evaluation.serving.releases.bundle import Bundle
from experiences.models import Agent


def plan_of_agent(agent: Agent) -> DeploymentPlan:
    """The serving release, and the one being deployed with its share; a shadow has no share and is left out.

    Raises:
        Conflict: nothing is deployed.
    """
    live = Deployment.objects.filter(agent=agent, state__in=LIVE).exclude(strategy=DeploymentStrategy.SHADOW)
    serving = AgentServing.objects.filter(agent=agent).select_related("release").first()
    current, coming = serving.release if serving else None, live.select_related("release").first()
    if current is None:  # the first release is deployed at once: none is live without one that serves
        raise Conflict(f"No release of {agent.name} is deployed.")
    if coming is None or coming.release_id == current.pk:  # it was promoted between the two reads
        return DeploymentPlan(str(current.pk), agent.slug, (_arm(current, 1.0),))
    arms = _arm(current, 1.0 - coming.share), _arm(coming.release, coming.share)
    return DeploymentPlan(f"{coming.pk}:{coming.share:g}", agent.slug, arms)


def plan_of_release(release: Release) -> DeploymentPlan:
    """This release for all of its agent's sessions."""
    return DeploymentPlan(str(release.pk), release.agent.slug, (_arm(release, 1.0),))


def tensorzero_of(plan: DeploymentPlan) -> AppliedPlan:
    """Raises:
    Conflict: TensorZero can't serve the plan; the message is the reason."""
    try:
        return serving_adapters.get("tensorzero").apply(plan, AdapterTarget())
    except ValueError as error:
        raise Conflict(f"TensorZero can't serve it: {error}") from error


def _arm(release: Release, share: float) -> DeploymentArm:
    return DeploymentArm(f"release-{release.number}", share, Bundle.from_json(release.bundle))
