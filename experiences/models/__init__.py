"""Agents, what they are asked, what they lived through, and what they learned from it."""

from experiences.models.agents import Agent, EndpointKind, ModelEndpoint, Philosophy, Runtime, ToolServer
from experiences.models.data import Dataset, DatasetRow, GroupRecord, TrajectoryRecord
from experiences.models.library import (
    Experience,
    ExperienceChange,
    ExperienceStatus,
    PromptPack,
    Question,
)

__all__ = [
    "Agent",
    "Dataset",
    "DatasetRow",
    "EndpointKind",
    "Experience",
    "ExperienceChange",
    "ExperienceStatus",
    "GroupRecord",
    "ModelEndpoint",
    "Philosophy",
    "PromptPack",
    "Question",
    "Runtime",
    "ToolServer",
    "TrajectoryRecord",
]
