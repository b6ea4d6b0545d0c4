"""Models of production: releases, deployments, and traces of answers."""

from evaluation.serving.models.deployments import (
    LIVE,
    AgentServing,
    CanaryObservation,
    Deployment,
    DeploymentEvent,
    DeploymentState,
    DeploymentStrategy,
    PlanDelivery,
)
from evaluation.serving.models.feedback import Feedback, FeedbackSource
from evaluation.serving.models.loop import (
    LEARNED_FROM,
    TURN_ENDED,
    LearningLoop,
    LoopRow,
    LoopTrigger,
    LoopTurn,
    RowReview,
    RowSource,
    RowState,
    TurnState,
)
from evaluation.serving.models.releases import Release, ReleaseApproval, ReleaseSource
from evaluation.serving.models.suites import Suite, SuiteKind, SuiteResult, SuiteRun, SuiteVersion, line_of
from evaluation.serving.models.survival import SurvivalRun
from evaluation.serving.models.traces import ArmName, KeySpending, ProductionTrace, TraceStatus, text_of

__all__ = [
    "LEARNED_FROM",
    "LIVE",
    "TURN_ENDED",
    "AgentServing",
    "ArmName",
    "CanaryObservation",
    "Deployment",
    "DeploymentEvent",
    "DeploymentState",
    "DeploymentStrategy",
    "Feedback",
    "FeedbackSource",
    "KeySpending",
    "LearningLoop",
    "LoopRow",
    "LoopTrigger",
    "LoopTurn",
    "PlanDelivery",
    "ProductionTrace",
    "Release",
    "ReleaseApproval",
    "ReleaseSource",
    "RowReview",
    "RowSource",
    "RowState",
    "Suite",
    "SuiteKind",
    "SuiteResult",
    "SuiteRun",
    "SuiteVersion",
    "SurvivalRun",
    "TraceStatus",
    "TurnState",
    "line_of",
    "text_of",
]
