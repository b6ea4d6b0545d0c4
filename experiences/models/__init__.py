"""Agents, their queries, their trajectories, and what they learned."""

from experiences.models.agents import (
    AceRelease,
    Agent,
    AgentRuntime,
    EndpointKind,
    EndpointServer,
    ModelEndpoint,
    Philosophy,
    ServerState,
    ToolServer,
)
from experiences.models.annotations import Annotation
from experiences.models.archives import ArchivedJob, ArchiveRule, ArchiveState, TrajectoryArchive
from experiences.models.exports import ExportPart, TrajectoryExport
from experiences.models.lessons import (
    ITERATION,
    Experience,
    ExperienceChange,
    ExperienceKind,
    ExperienceStatus,
    PromptPack,
    Question,
)
from experiences.models.playbooks import (
    ContextDelta,
    DeltaState,
    DeltaType,
    Evolution,
    ExecutionTrace,
    Playbook,
    PlaybookChange,
    PlaybookSection,
    PlaybookVersion,
)
from experiences.models.trajectories import Dataset, DatasetRow, GroupRecord, QueryRecord, TrajectoryRecord

__all__ = [
    "ITERATION",
    "AceRelease",
    "Agent",
    "AgentRuntime",
    "Annotation",
    "ArchiveRule",
    "ArchiveState",
    "ArchivedJob",
    "ContextDelta",
    "Dataset",
    "DatasetRow",
    "DeltaState",
    "DeltaType",
    "EndpointKind",
    "EndpointServer",
    "Evolution",
    "ExecutionTrace",
    "Experience",
    "ExperienceChange",
    "ExperienceKind",
    "ExperienceStatus",
    "ExportPart",
    "GroupRecord",
    "ModelEndpoint",
    "Philosophy",
    "Playbook",
    "PlaybookChange",
    "PlaybookSection",
    "PlaybookVersion",
    "PromptPack",
    "QueryRecord",
    "Question",
    "ServerState",
    "ToolServer",
    "TrajectoryArchive",
    "TrajectoryExport",
    "TrajectoryRecord",
]
