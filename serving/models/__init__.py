"""Releases of agents, how they come into production, and what they answer there."""

from serving.models.deployments import (
    LIVE,
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    DeploymentState,
    DeploymentStrategy,
)
from serving.models.feedback import Feedback, FeedbackSource
from serving.models.releases import Release, ReleaseSource
from serving.models.traces import ArmName, ProductionTrace, TraceStatus, text_of

__all__ = [
    "LIVE",
    "AgentServing",
    "ArmName",
    "CanaryObservation",
    "Deployment",
    "DeploymentEvent",
    "DeploymentState",
    "DeploymentStrategy",
    "Feedback",
    "FeedbackSource",
    "ProductionTrace",
    "Release",
    "ReleaseSource",
    "TraceStatus",
    "text_of",
]
