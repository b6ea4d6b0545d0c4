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
from serving.models.releases import Release, ReleaseApproval, ReleaseSource
from serving.models.suites import Suite, SuiteKind, SuiteResult, SuiteRun, SuiteVersion, line_of
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
    "ReleaseApproval",
    "ReleaseSource",
    "Suite",
    "SuiteKind",
    "SuiteResult",
    "SuiteRun",
    "SuiteVersion",
    "TraceStatus",
    "line_of",
    "text_of",
]
