"""Adapters that carry out a deployment: the built-in gateway, TensorZero, or a webhook."""

from evaluation.serving.adapters.base import (
    AdapterFailed,
    AdapterTarget,
    AppliedPlan,
    DeploymentArm,
    DeploymentPlan,
    ServingAdapter,
)
from evaluation.serving.adapters.registry import serving_adapters

__all__ = [
    "AdapterFailed",
    "AdapterTarget",
    "AppliedPlan",
    "DeploymentArm",
    "DeploymentPlan",
    "ServingAdapter",
    "serving_adapters",
]
