"""Runs of the playground over rows of a dataset: rows by candidates, each cell asked for once and judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np
from django.core.cache import cache
from redis.exceptions import RedisError

from agentcore_site.audit.services import record
from agentcore_site.lib.errors import Invalid
from agentcore_site.lib.money import dollars
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.permissions import require, require_somewhere
from budgets.meter_port import UnknownPrice
from budgets.selectors import budget_chain, rooms_check
from evaluation.serving.gateway.served_models import ServedModel
from evaluation.serving.playground.candidates import MODEL, Candidate, candidate_label, candidate_model
from evaluation.serving.playground.row_scores import (
    CandidateTotal,
    CellFigures,
    RowScore,
    candidate_total,
    row_score,
)
from evaluation.serving.playground.services import SECONDS, ask_once, body_of, cache_key, candidate_models, run_calls
from evaluation.serving.playground.trials import Trial, TrialAnswer, trial_pieces, trial_worst_micros
from experiences.agents.selectors import dataset_get, dataset_rows_visible
from experiences.models import Dataset, DatasetRow
from experiences.rollouts.conversations import conversation_of
from experiences.rollouts.environments.scorers import Check, Rubric, check_for, rubric_for
from experiences.rollouts.runtimes.chat_body import BadCall

MOST_ROWS: Final = 20
PLACES: Final = 12  # bits of a call's name that say its row


@dataclass(frozen=True)
class RowsChoice:
    """``n`` rows of a dataset: the first ones, or with ``drawn`` a random sample by ``seed``."""

    dataset: str
    n: int
    drawn: bool = False
    seed: int = 0


@dataclass(frozen=True)
class RowTerms:
    """The limits of each answer of a run, and its judging. ``scorer``: "auto" for each row's own. ``judge``: the model
    for rows with a rubric, as a candidate's value; "" for none."""

    system: str
    max_tokens: int
    most_micros: int
    scorer: str = "auto"
    judge: str = ""


@dataclass(frozen=True)
class RowsRun:
    """A run that may begin. ``worst_micros``: the most that it can cost."""

    dataset: Dataset
    rows: list[DatasetRow]
    labels: list[str]
    worst_micros: int


@dataclass(frozen=True)
class RunCell:
    """A candidate at its place, and a row by its index in the dataset, the run's number ``at`` of ``n``; all counted
    from 0."""

    candidate: Candidate
    place: int
    row: int
    at: int
    n: int


@dataclass(frozen=True)
class AskedCell:
    """A call with the check of its answer. ``others``: all calls of the candidate, itself included."""

    trial: Trial
    query: str
    check: Check
    rubric: Rubric | None
    judge: ServedModel | None
    others: Sequence[UUID]


@dataclass(frozen=True)
class CellAnswer:
    """``total`` is None where Redis is away."""

    found: TrialAnswer
    score: RowScore
    cost_micros: int
    total: CandidateTotal | None


def rows_begin(actor: Actor, candidates: Sequence[Candidate], choice: RowsChoice, terms: RowTerms, run: str) -> RowsRun:
    """Checks a run over rows before its first call: rows, candidates, and room in all budgets for its worst case.

    Raises:
        Missing, Forbidden: a candidate or the dataset is not the actor's, or the actor may not.
        Invalid: a candidate can't be called, or a row can't be judged.
        Insufficient: a budget has no room for the worst case.
    """
    require_somewhere(actor, "gateway.call")
    run_calls(actor, run)
    dataset = dataset_get(actor, choice.dataset)
    rows = rows_chosen(actor, dataset, choice)
    judge = judge_model(actor, terms.judge)
    n_judged = sum(_judging(row, terms)[1] is not None for row in rows)
    if n_judged and judge is None:
        message = f"{n_judged} of these {len(rows)} rows are judged by a language model. Choose the judge."
        raise Invalid(message, fields={"judge": message})
    models = candidate_models(actor, candidates)
    worst = _worst_micros(models, candidates, rows, terms)
    wanted: dict[tuple[UUID, UUID | None], int] = defaultdict(int)
    for model, answers_micros in zip(models, worst, strict=True):
        wanted[model.organization_id, model.agent_id] += answers_micros
    if judge is not None:
        wanted[judge.organization_id, None] += n_judged * len(models) * terms.most_micros
    _room_check(wanted)
    limits = {"limit_usd": dollars(terms.most_micros), "max_tokens": terms.max_tokens}
    record(
        actor,
        "playground.asked",
        organization=dataset.organization_id,
        after={
            "candidates": [one.value for one in candidates],
            "dataset": str(dataset.pk),
            "rows": len(rows),
            **limits,
        },
    )
    labels = [candidate_label(model, one) for model, one in zip(models, candidates, strict=True)]
    return RowsRun(dataset, rows, labels, sum(wanted.values()))


def rows_chosen(actor: Actor, dataset: Dataset, choice: RowsChoice) -> list[DatasetRow]:
    """The rows of a run, in the dataset's order.

    Raises:
        Forbidden: the actor's role does not read rows.
        Invalid: the dataset is archived or empty.
    """
    if dataset.archived_at is not None:
        message = f"{dataset.name} is archived. Choose another dataset."
        raise Invalid(message, fields={"dataset": message})
    visible = dataset_rows_visible(actor, dataset).order_by("index")
    if choice.drawn:
        known = list(visible.values_list("index", flat=True))
        drawn = np.random.default_rng(choice.seed).choice(known, min(choice.n, len(known)), replace=False)
        rows = list(visible.filter(index__in=drawn.tolist()))
    else:
        rows = list(visible[: choice.n])
    if not rows:
        message = f"{dataset.name} has no rows."
        raise Invalid(message, fields={"dataset": message})
    return rows


def judge_model(actor: Actor, value: str) -> ServedModel | None:
    """Raises:
    Missing, Forbidden, Invalid: it is no model that the actor may call."""
    if not value:
        return None
    if not value.startswith(f"{MODEL}:"):
        raise Invalid("A judge is a model.", fields={"judge": "A judge is a model."})
    try:
        found = candidate_model(actor, Candidate(value))
    except Invalid as error:
        raise Invalid(error.message, fields={"judge": error.message}) from error
    require(actor, "gateway.call", found.organization_id)
    return found


def cell_begin(actor: Actor, cell: RunCell, dataset_id: str, terms: RowTerms, run: str) -> AskedCell:
    """The call of one cell. From now on it counts as made.

    Raises:
        Missing, Forbidden, Invalid: as ``rows_begin``.
        Conflict: this answer was asked for before.
        Unavailable: it can't be known whether it was.
    """
    [model] = candidate_models(actor, [cell.candidate])
    dataset = dataset_get(actor, dataset_id)
    row = dataset_rows_visible(actor, dataset).filter(index=cell.row).first()
    if row is None:
        raise Invalid(f"Row {cell.row + 1} is not there any more.")
    check, rubric = _judging(row, terms)
    judge = judge_model(actor, terms.judge)
    first = run_calls(actor, run)[cell.place]
    others = [call_of_row(first, at) for at in range(cell.n)]
    ask_once(others[cell.at])
    trial = _trial(others[cell.at], model, cell.candidate, row, terms)
    return AskedCell(trial, row.query, check, rubric, judge, others)


async def cell_pieces(asked: AskedCell) -> AsyncIterator[str | CellAnswer]:
    """The texts of the answer as they come, and at last the answer with its verdict."""
    trial = asked.trial
    async for piece in trial_pieces(trial):
        if isinstance(piece, str):
            yield piece
            continue
        score = RowScore()
        if not piece.error:
            score = await row_score(
                piece.text,
                asked.query,
                asked.check,
                rubric=asked.rubric,
                judge=asked.judge,
                most_micros=trial.most_micros,
            )
        cost_micros = piece.cost_micros + score.cost_micros
        figures = CellFigures(not piece.error, score.success, score.score, cost_micros, piece.seconds)
        yield CellAnswer(piece, score, cost_micros, await _total(trial.id, figures, asked.others))


def call_of_row(first: UUID, at: int) -> UUID:
    """The name of a candidate's call for its row ``at``."""
    return UUID(int=(first.int >> PLACES << PLACES) | at)


async def _total(call: UUID, figures: CellFigures, others: Sequence[UUID]) -> CandidateTotal | None:
    """The candidate's total, of the answers that ended until now; they are kept without their words."""
    try:
        await cache.aset(cache_key(call), figures, SECONDS)
        known = await cache.aget_many([cache_key(one) for one in others])
    except RedisError:
        return None
    return candidate_total([one for one in known.values() if isinstance(one, CellFigures)])


def _judging(row: DatasetRow, terms: RowTerms) -> tuple[Check, Rubric | None]:
    """Raises Invalid: there is nothing to judge an answer by."""
    try:
        check = check_for(row.expected_outcome, terms.scorer, query=row.query)
        return check, rubric_for(row.expected_outcome, terms.scorer)
    except ValueError as error:
        message = f"Row {row.index + 1} can't be judged: {error}"
        raise Invalid(message, fields={"scorer": message}) from error


def _trial(call: UUID, model: ServedModel, candidate: Candidate, row: DatasetRow, terms: RowTerms) -> Trial:
    found = conversation_of(row.query, row.metadata)
    if found is None:
        said: list[Mapping[str, object]] = [{"role": "user", "content": row.query}]
    else:
        own = [("system", found.system)] if found.system else []
        turns = [*own, *found.before, ("user", found.task)]
        said = [{"role": role, "content": content} for role, content in turns]
    body = body_of(said, system=terms.system, max_tokens=terms.max_tokens)
    return Trial(call, model, body, terms.most_micros, candidate.prompt)


def _worst_micros(
    models: Sequence[ServedModel], candidates: Sequence[Candidate], rows: Sequence[DatasetRow], terms: RowTerms
) -> list[int]:
    """The most that each candidate's answers can cost. Raises Invalid: a call can't be made or priced."""
    found = []
    for place, (model, candidate) in enumerate(zip(models, candidates, strict=True), 1):
        try:
            _priced_check(model)
            trials = (_trial(UUID(int=0), model, candidate, row, terms) for row in rows)
            found.append(sum(map(trial_worst_micros, trials)))
        except (BadCall, UnknownPrice, ValueError) as error:
            raise Invalid(str(error), fields={f"candidate_{place}": str(error)}) from error
    return found


def _priced_check(model: ServedModel) -> None:
    """Raises UnknownPrice: no model that could answer has a price."""
    upstreams = model.upstreams if model.current is None else model.current.upstreams
    assert model.prices is not None
    for number, upstream in enumerate(upstreams, 1):
        try:
            model.prices.price(upstream.priced)
            return
        except UnknownPrice:
            if number == len(upstreams):
                raise


def _room_check(wanted: Mapping[tuple[UUID, UUID | None], int]) -> None:
    """Raises Insufficient."""
    for organization in {one for one, _ in wanted}:
        own = {agent: micros for (of, agent), micros in wanted.items() if of == organization}
        rooms_check(budget_chain(organization, playground=True), sum(own.values()))
        for agent, micros in own.items():
            rooms_check(budget_chain(organization, agent_id=agent)[1:], micros)
