"""The built-in gateway, which reads deployments from their rows."""

from __future__ import annotations

from typing import ClassVar

from evaluation.serving.adapters.base import AdapterTarget, AppliedPlan, DeploymentPlan, ServingAdapter


class BuiltInGateway(ServingAdapter):
    title: ClassVar = "The built-in gateway"

    def faults(self, plan: DeploymentPlan) -> list[str]:
        return []

    def apply(self, plan: DeploymentPlan, target: AdapterTarget) -> AppliedPlan:
        return AppliedPlan(f"The gateway serves {plan.agent} by it from the next request on.")
