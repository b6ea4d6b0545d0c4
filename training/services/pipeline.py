"""The pipeline ``tfgrpo-learning``: about a hundred queries, three epochs, small groups, one command.

Options that are not given are read from the environment (``TFGRPO_…``), else they have defaults. The result is an
ordinary training job.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from django.conf import settings

from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.selectors import dataset_rows
from experiences.models import Agent, AgentRuntime, Dataset
from training.data.uploads import clean_rows
from training.models import TrainingRun
from training.services.runs import run_start
from training.splits import split_queries

ALGORITHMS: Final[Mapping[str, str]] = {"tfgrpo": "tfgrpo", "grpo": "recommended"}  # and the presets they start from
LEAST_GROUP, LEAST_SAMPLE = 2, 10
Row = TypeVar("Row")


@dataclass(frozen=True)
class PipelineOptions:
    """Options of the pipeline. ``budget_usd`` None means the budget of the preset."""

    epochs: int
    group_size: int
    sample_size: int
    train_temperature: float
    eval_temperature: float
    batch_size: int = 10
    algorithm: str = "tfgrpo"
    budget_usd: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises:
        Invalid: a value that nothing could be learned with; the message says why."""
        if self.group_size < LEAST_GROUP:
            _refuse(
                "group_size",
                f"The group size must be at least {LEAST_GROUP}: lessons are learned by comparing rollouts of the same "
                f"query; got {self.group_size}.",
            )
        if self.sample_size < LEAST_SAMPLE:
            _refuse("sample_size", f"The sample size must be at least {LEAST_SAMPLE}; got {self.sample_size}.")
        if not 1 <= self.epochs <= 100:
            _refuse("epochs", f"Epochs must be between 1 and 100; got {self.epochs}.")
        if not 1 <= self.batch_size <= 128:
            _refuse("batch_size", f"The batch size must be between 1 and 128; got {self.batch_size}.")
        if self.algorithm not in ALGORITHMS:
            _refuse("algorithm", f"The algorithm must be one of {', '.join(ALGORITHMS)}; got {self.algorithm!r}.")


def pipeline_options(**given: Any) -> PipelineOptions:
    """The given options; None is replaced by the value of the environment.

    Raises:
        Invalid: a value that nothing could be learned with.
    """
    from_environment = {
        "epochs": settings.TFGRPO_EPOCHS,
        "group_size": settings.TFGRPO_GROUP_SIZE,
        "sample_size": settings.TFGRPO_SAMPLE_SIZE,
        "train_temperature": settings.TFGRPO_TRAIN_TEMP,
        "eval_temperature": settings.TFGRPO_EVAL_TEMP,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    return PipelineOptions(**{**from_environment, **asked})


def pipeline_start(
    actor: Actor,
    *,  # the arguments of the command and of the request
    agent: Agent,
    options: PipelineOptions,
    rows: Sequence[Any] | None = None,
    dataset: Dataset | None = None,
    domain: str = "",
    title: str = "",
) -> TrainingRun:
    """Queues the pipeline's job, on rows or on a dataset. More rows than the sample size are sampled by the seed; a
    sample of a dataset is about what the dataset is about. ``domain`` says it of rows.

    Raises:
        Invalid: the agent has no model that reads a context, or the data are wrong.
        Forbidden, Conflict, TooMany, Insufficient: as ``run_start`` says.
    """
    if agent.runtime == AgentRuntime.ACTION:
        _refuse(
            "agent",
            f"The pipeline teaches agents of language models; {agent.slug} chooses actions and reads nothing. "
            "Take `manage.py train`.",
        )
    known: Sequence[Mapping[str, Any]] = dataset_rows(dataset) if dataset is not None else clean_rows(list(rows or []))
    taken = sampled(known, options.sample_size, options.seed)
    whole = dataset is not None and len(taken) == len(known)
    if dataset is not None and not domain and not whole:
        domain = dataset.domain
    return run_start(
        actor,
        agent=agent,
        dataset=dataset if whole else None,
        rows=None if whole else taken,
        domain=domain,
        config=pipeline_config(options, [row["query"] for row in taken]),
        preset=ALGORITHMS[options.algorithm],
        title=title or f"tfgrpo-learning of {agent.name}",
    )


def sampled(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """At most ``size`` rows, drawn by the seed alone, in their order."""
    if len(rows) <= size:
        return list(rows)
    return [rows[at] for at in sorted(random.Random(seed).sample(range(len(rows)), size))]  # noqa: S311


def pipeline_config(options: PipelineOptions, queries: Sequence[str]) -> dict[str, Any]:
    """Differences from the preset: each epoch passes once over the training queries and ends with a validation."""
    n_train = len(split_queries(queries, seed=options.seed).train)
    batch = min(options.batch_size, n_train)
    length = -(-n_train // batch)
    config: dict[str, Any] = {
        "algorithm": options.algorithm,
        "n_iterations": options.epochs * length,
        "batch_size": batch,
        "n_trajectories_per_query": options.group_size,
        "temperature": options.train_temperature,
        "eval_temperature": options.eval_temperature,
        "eval_interval": length,
        "early_stopping": {"enabled": False},
        "context": {"epochs": options.epochs},
        "seed": options.seed,
    }
    return config | ({} if options.budget_usd is None else {"max_budget_usd": options.budget_usd})


def _refuse(name: str, message: str) -> None:
    raise Invalid(message, fields={name: message})
