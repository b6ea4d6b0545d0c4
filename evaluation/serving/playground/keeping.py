"""Rows, lessons and prompts that a person keeps of a run of the playground."""

from __future__ import annotations

from typing import Final

from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.agents.selectors import dataset_rows
from experiences.agents.services.agents import agent_update
from experiences.agents.services.datasets import dataset_create
from experiences.lessons.services.importing import record_texts
from experiences.models import Agent, Dataset
from experiences.models.trajectories import DatasetOrigin
from training.data.annotated import rows_joined
from training.data.uploads import clean_rows

SOURCE: Final = "written in the playground"


def row_keep(actor: Actor, *, question: str, answer: str, dataset: Dataset | None, name: str = "") -> Dataset:
    """The next version of a dataset with this question and its correct answer, or without one a new dataset.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the row can't be used.
        Conflict: a version follows that one already, or the same rows are there.
    """
    require(actor, "dataset.edit", current_organization(actor))
    row = {"query": question, "expected_outcome": {"answer": answer}}
    return dataset_create(
        actor,
        name=name or ("" if dataset is not None else "playground"),
        rows=clean_rows(rows_joined(dataset_rows(dataset) if dataset is not None else [], [row])),
        origin=DatasetOrigin.PLAYGROUND,
        follows=dataset,
    )


def lesson_keep(actor: Actor, agent: Agent, *, text: str) -> None:
    """Proposes a lesson: it is in quarantine, so that no rollout sees it before a person approves it.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the text is no lesson.
        Conflict: the agent has it already, is archived or reads no lessons.
    """
    [found] = record_texts(actor, [text], agent=agent, source=SOURCE, origin={"source": SOURCE})
    if found.left_out:
        raise Invalid(f"This is no lesson: {found.left_out}.")
    if found.known:
        raise Conflict(f"{agent.name} has this lesson already.")


def prompt_keep(actor: Actor, agent: Agent, *, prompt: str) -> Agent:
    """Makes an edited prompt the agent's own.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: the prompt is empty or too long.
        Conflict: the agent is archived, or its prompt comes from a pack.
    """
    require(actor, "agent.edit", agent.organization_id)
    if not prompt.strip():
        raise Invalid("The edited prompt is empty, so nothing was changed.")
    if agent.prompt_pack is not None:
        raise Conflict(f"The prompt of {agent.name} comes from the pack {agent.prompt_pack.name}. Change that one.")
    return agent_update(actor, agent, system_prompt=prompt)
