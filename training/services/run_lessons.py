"""Lessons of a run: from rows to the library that it starts with, and back to rows after each iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NotRequired, TypedDict

from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from agentcore_site.jobs.models import Job
from experiences.learning.lessons.attempts import shared_texts, tool_stats
from experiences.learning.lessons.library import Lesson, Library, Status, line_tokens
from experiences.learning.lessons.prompts import ReflectionOptions
from experiences.learning.lessons.reflection import Reflected
from experiences.learning.lessons.similarity import ALIKE, most_alike
from experiences.learning.lessons.states import LessonUpdate
from experiences.learning.playbooks.items import PlaybookItem
from experiences.learning.rendering import context_of, item_lesson
from experiences.lessons.selectors import by_person, library_of, of_agent
from experiences.lessons.services.recording import experiences_sync
from experiences.lessons.stamps import checked, stamp_of_agent
from experiences.models import Agent, Experience, ExperienceChange, ExperienceKind, ExperienceStatus, PromptPack
from experiences.playbooks.selectors import sections_of_agent
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory
from training.learners.gate import searches
from training.models import Epoch, TrainingRun
from training.policies.context import ContextPolicy
from training.policies.effects import Estimate
from training.policies.prior_estimates import PriorEstimates
from training.policies.query_rule import QueryRule
from training.policies.served_context import ServedContext
from training.schema import GRPOConfig
from training.trainer import IterationReport
from training.trainer.reports import GateReport

MAX_CHANGES = 2_000  # receipts that an epoch keeps
MEASURED = ("effect", "effect_error", "rollouts")
SECTION_WEIGHT = 0.5  # a section may be right; only rollouts without it can show that


class LibraryEntry(TypedDict):
    """A lesson (``Lesson.as_dict``) with its weight and its measured effect, as a run's row stores it."""

    lesson: dict[str, Any]
    weight: float
    effect: NotRequired[float | None]
    effect_error: NotRequired[float | None]
    rollouts: NotRequired[int]


def starting_library(agent: Agent, sections: Sequence[PlaybookItem] | None = None) -> list[LibraryEntry]:
    """The library that a run of this agent starts with, as its row stores it: the active lessons of its domain, and the
    sections of its playbook (None: of its current version). Lessons whose stamps do not fit are left out.

    Raises:
        Conflict: the agent's prompt pack was altered.
    """
    stamp_of_agent(agent)
    lessons = [library_entry(row, "active") for row in _fitting(agent)]
    texts = [entry["lesson"]["text"] for entry in lessons]
    # An adopted lesson is also a section of the playbook: twice in the context, half of its effect would be its twin's.
    items = sections_of_agent(agent) if sections is None else sections
    others = [item for item in items if most_alike(item.content, texts)[1] < ALIKE]
    return lessons + [{"lesson": item_lesson(item).as_dict(), "weight": SECTION_WEIGHT} for item in others]


def let_in_lessons(agent: Agent, config: GRPOConfig, library: Sequence[LibraryEntry]) -> list[LibraryEntry]:
    """Lessons that a person let in and that were not measured since, such as those of an imported skill: candidates of
    the agent's next run that measures its lessons one by one, as many as have room beside ``library``, the first ones
    first."""
    if config.algorithm != "grpo":
        return []
    last = ExperienceChange.objects.filter(experience=OuterRef("pk")).order_by("-pk")
    rows = Experience.objects.filter(agent=agent, status=ExperienceStatus.PROPOSED).annotate(
        ended_job=Subquery(last.values("job")[:1]),
        ended_by=Subquery(last.values("by")[:1]),
        ended_at=Subquery(last.values("at")[:1]),
    )
    # A person's change writes the row first and its history then; a measurement writes the row alone.
    rows = rows.filter(by_person("ended_"), Q(rollouts=0) | Q(updated_at__lte=F("ended_at"))).order_by("created_at")
    there = {entry["lesson"]["handle"] for entry in library}
    room = config.context.max_items - len(library)
    tokens = config.context.max_tokens - sum(line_tokens(entry["lesson"]["text"]) for entry in library)
    found: list[LibraryEntry] = []
    for row in _of_domain(agent, checked(of_agent(agent, rows))):
        if row.handle in there:
            continue
        if len(found) >= room or row.tokens > tokens:
            break
        tokens -= row.tokens
        found.append(library_entry(row, "proposed"))
    return found


def library_entry(row: Experience, status: Status) -> LibraryEntry:
    """A lesson with its measured effect, as a run's row stores it."""
    lesson = replace(_lesson(row), status=status)
    return {
        "lesson": lesson.as_dict(),
        "weight": row.weight,
        "effect": row.effect,
        "effect_error": row.effect_error,
        "rollouts": row.rollouts,
    }


def _fitting(agent: Agent) -> list[Experience]:
    """The active lessons of the domain that the agent's prompt pack is for; all of them without a pack."""
    return _of_domain(agent, library_of(agent))


def _of_domain(agent: Agent, rows: Iterable[Experience]) -> list[Experience]:
    domain = agent.prompt_pack.domain if agent.prompt_pack is not None else ""
    return [row for row in rows if not domain or row.domain in ("", domain)]


def library_of_run(run: TrainingRun) -> tuple[Library, Mapping[str, float]]:
    """The library that a run started with (active lessons and candidates), and the weights of its lessons by handle."""
    library = Library.of([entry["lesson"] for entry in run.library])
    return library, {entry["lesson"]["handle"]: float(entry["weight"]) for entry in run.library}


def library_at_start(run: TrainingRun) -> Library:
    """The context of the agent when a run started."""
    return Library(tuple(one for one in library_of_run(run)[0] if one.status == "active"))


def known_of_run(run: TrainingRun) -> PriorEstimates | None:
    """Estimates by earlier runs for the library that a run started with."""
    return None if run.known is None else PriorEstimates.from_json(run.known)


def runs_under(agent: Agent, chosen: PromptPack | None) -> QuerySet[TrainingRun]:
    """Earlier runs of an agent with the same prompt: that of ``chosen`` (a pack for the domain of the data), or else
    (None) the agent's own."""
    runs = TrainingRun.objects.filter(agent=agent)
    if chosen is None:
        return runs.filter(Q(prompt_pack=None) | Q(prompt_pack=agent.prompt_pack))
    as_its_own = Q(prompt_pack=None, origin__acts_by__prompt=chosen.stamp)
    return runs.filter(Q(prompt_pack=chosen) | as_its_own)


def starting_rule(agent: Agent, chosen: PromptPack | None = None) -> dict[str, Any] | None:
    """The rule that the agent's last run under this prompt (``runs_under``) shipped, as a row stores it; None where all
    queries get the same lessons."""
    shipped = runs_under(agent, chosen).filter(shipped_at__isnull=False).order_by("-shipped_at")
    rule: dict[str, Any] | None = shipped.values_list("shipped_rule", flat=True).first()
    return rule


def rule_of_run(run: TrainingRun) -> QueryRule | None:
    """The rule that a run began with, of the lessons that still have the text for which it was made."""
    return _rule_for(library_of_run(run)[0], run.starting_rule)


def context_of_agent(agent: Agent, sections: Sequence[PlaybookItem] | None = None) -> ServedContext:
    """The context of the agent outside of jobs, by its current rows; its next run would start with it. ``sections`` are
    the items of its playbook (None: those of its newest version).

    Raises:
        Conflict: the agent's prompt pack was altered.
    """
    library = Library.of([entry["lesson"] for entry in starting_library(agent, sections)])
    return ServedContext(library.lessons, _rule_for(library, starting_rule(agent)))


def _rule_for(library: Library, stored: Mapping[str, Any] | None) -> QueryRule | None:
    """The rule in a row, of the lessons of ``library`` that still have the text for which it was made."""
    if stored is None:
        return None
    versions: Mapping[str, int] = stored["versions"]
    same = {lesson.handle for lesson in library if versions.get(lesson.handle) == lesson.version}
    rule = QueryRule.from_state_dict(stored["rule"])
    return rule.without([handle for handle in rule.handles if handle not in same])


def ship_again(run: TrainingRun, policy: ContextPolicy, id_of: IdOf, *, by: str) -> None:
    """Restores the context that an earlier checkpoint of the run shipped, with its texts. Other active lessons become
    candidates. Changes that a person made since the run was created stay, and so does the playbook."""
    shipped = set(policy.shipped)
    states = [state for state in states_of(policy, id_of, _began_with(run)) if state.handle in shipped]
    for row in Experience.objects.filter(agent=run.agent, status=ExperienceStatus.ACTIVE).exclude(handle__in=shipped):
        figures = {name: getattr(row, name) for name in MEASURED}
        states.append(_state(replace(_lesson(row), status="proposed"), row.weight, figures, id_of))
    if states:
        limit = run.configuration.context.max_words
        experiences_sync(job=run.job, agent=run.agent, states=states, by=by, max_words=limit, acting=run.acting_agent)
    TrainingRun.objects.filter(pk=run.pk).update(**_shipped_now(policy))


def _began_with(run: TrainingRun) -> dict[str, dict[str, Any]]:
    return {entry["lesson"]["handle"]: entry for entry in run.library}


def _shipped_now(policy: ContextPolicy) -> dict[str, Any]:
    """Columns of a run that record the shipped rule."""
    rule = policy.shipped_rule
    versions = {lesson.handle: lesson.version for lesson in policy.shipped_lessons}
    kept = None if rule is None else {"rule": rule.as_json(), "versions": versions}
    return {"shipped_rule": kept, "shipped_at": Now()}


def changed_nothing(run: TrainingRun, policy: ContextPolicy) -> bool:
    """Whether the policy ships the same texts to the same queries as at the start of its run."""
    rules = [None if rule is None else rule.as_json() for rule in (policy.shipped_rule, policy.start_rule)]
    return context_of(policy.shipped_lessons) == context_of(library_at_start(run).lessons) and rules[0] == rules[1]


def reflection_options(config: GRPOConfig, agent: Agent, train: Sequence[Scenario]) -> ReflectionOptions:
    context = config.context
    pack = agent.prompt_pack
    return ReflectionOptions(
        max_groups=context.reflect_groups,
        each=context.reflect_each,
        max_lessons=context.max_lessons,
        max_words=min(context.max_words, pack.max_words) if pack else context.max_words,
        domain=pack.domain if pack else "",
        concurrency=config.max_concurrent_rollouts,
        group_tokens=context.group_tokens,
        objective=agent.objective,
        learning_objective=agent.learning_objective,
        show_answers=context.show_answers,
        exemplars=context.exemplars,
        shared=shared_texts(train),
    )


IdOf = Callable[[RolloutKey], Any]


def lessons_sync(job: Job, run: TrainingRun, policy: ContextPolicy, report: IterationReport, id_of: IdOf) -> None:
    """Writes the lessons of an iteration, inside its transaction. A shipped lesson keeps the text and the status with
    which it was shipped: other runs and users rely on its row."""
    states = states_of(policy, id_of, _began_with(run))
    if states:
        limit = run.configuration.context.max_words
        experiences_sync(
            job=job,
            agent=run.agent,
            states=states,
            by=ExperienceChange.by_iteration(report.iteration),
            max_words=limit,
            acting=run.acting_agent,
        )
    if report.gate is not None and report.gate.accepted:
        TrainingRun.objects.filter(pk=run.pk).update(**_shipped_now(policy))


def states_of(
    policy: ContextPolicy, id_of: IdOf, earlier: Mapping[str, Mapping[str, Any]] | None = None
) -> list[LessonUpdate]:
    """The policy's experiences as rows know them; sections are their playbook's to write. ``id_of`` gives the id under
    which a rollout of this run is kept; lessons of earlier runs have theirs already. ``earlier`` is what was measured
    before this run, by handle: it holds for a text that this run has not measured itself."""
    known, weights = policy.estimate(), policy.probabilities
    before = earlier or {}
    states = []
    for at, draft in enumerate(policy.library):
        if draft.kind == "section":
            continue
        lesson, then = policy.outside(draft), before.get(draft.handle, {})
        if lesson.text != draft.text:  # what this run measures is another text
            figures, weight = _measured_before(lesson, then), float(then.get("weight", weights[at]))
        else:
            figures = _measured(policy, known, at, then) if policy.selects else _measured_before(lesson, then)
            weight = float(weights[at]) if policy.selects else float(lesson.live)
        states.append(_state(lesson, weight, figures, id_of))
    return states


def _measured(policy: ContextPolicy, known: Estimate, at: int, before: Mapping[str, Any]) -> dict[str, Any]:
    if known.information[at] > 0:
        return {
            "effect": _finite(known.beta[at]),
            "effect_error": _finite(known.error[at]),
            "rollouts": int(policy.effects.rollouts[at]),
        }
    return _measured_before(policy.library.lessons[at], before)


def _measured_before(lesson: Lesson, before: Mapping[str, Any]) -> dict[str, Any]:
    """Estimates by earlier runs for the same text."""
    same_text = before and before["lesson"]["version"] == lesson.version
    return {name: before[name] for name in MEASURED if name in before} if same_text else {}


def _state(lesson: Lesson, weight: float, measured: Mapping[str, Any], id_of: IdOf) -> LessonUpdate:
    return LessonUpdate(
        handle=lesson.handle,
        kind=lesson.kind,
        summary=lesson.text,
        why=lesson.why,
        domain=lesson.domain,
        status=lesson.status,
        version=lesson.version,
        weight=round(weight, 6),
        **measured,
        tokens=lesson.tokens,
        epoch=lesson.epoch,
        group=lesson.group,
        task=lesson.task,
        taught_by=tuple(_kept_id(name, id_of) for name in lesson.taught_by),
        parents=lesson.parents,
        ground_truth=lesson.ground_truth,
        relative_rank=lesson.relative_rank,
        tool_stats=lesson.tool_stats,
    )


def _kept_id(name: str, id_of: IdOf) -> Any:
    """A rollout of this run is named by its key, one of an earlier run by its id."""
    parts = name.split("/")
    return id_of(RolloutKey(*map(int, parts))) if len(parts) == 3 else name


def _finite(value: float) -> float | None:
    return round(float(value), 9) if math.isfinite(value) else None


def _lesson(row: Experience) -> Lesson:
    return Lesson(
        handle=row.handle,
        kind="exemplar" if row.kind == ExperienceKind.EXEMPLAR else "experience",
        text=row.summary,
        version=row.version,
        status="active",
        domain=row.domain,
        why=row.why,
        task=row.task,
        group=row.group,
        epoch=row.epoch,
        taught_by=tuple(str(one) for one in row.taught_by),
        parents=tuple(row.parents),
        ground_truth=row.ground_truth,
        relative_rank=row.relative_rank,
        tool_stats=tuple(row.tool_stats),
    )


# -- epochs ------------------------------------------------------------------------------------------------------------


def epoch_add(run: TrainingRun, report: IterationReport) -> None:
    """Adds an iteration to its epoch's row. Inside the iteration's transaction, and so exactly once."""
    row, _ = Epoch.objects.select_for_update(no_key=True).get_or_create(run=run, number=report.epoch)
    trajectories = [trajectory for group in report.groups for trajectory in group.trajectories]
    row.metrics = added(row.metrics, sums_of(trajectories, report))
    receipts = report.reflected.receipts if report.reflected else []
    changes = [receipt.as_dict() | {"iteration": report.iteration} for receipt in receipts]
    row.changes = [*row.changes, *changes][-MAX_CHANGES:]
    row.iterations += 1
    if report.gate is not None:
        row.gate = asdict(report.gate) | _steps(run, row, report.gate)
    row.save(update_fields=["metrics", "changes", "iterations", "gate", "updated_at"])


def _steps(run: TrainingRun, epoch: Epoch, decided: GateReport) -> dict[str, Any]:
    """The steps of the search in this epoch so far; empty where there is no search."""
    if not searches(run.configuration):
        return {}
    earlier = (epoch.gate or {}).get("steps", [])
    return {"steps": [*earlier, {"iteration": decided.iteration, "kept": decided.kept}]}


def sums_of(trajectories: Sequence[Trajectory], report: IterationReport) -> dict[str, Any]:
    """Sums over the trajectories of an iteration."""
    known = [trajectory.reward for trajectory in trajectories if math.isfinite(trajectory.reward)]
    reflected = report.reflected or Reflected()
    return {
        "rollouts": len(trajectories),
        "successes": sum(trajectory.success for trajectory in trajectories),
        "scored": len(known),
        "reward_sum": sum(known),
        "steps": sum(len(trajectory.steps) for trajectory in trajectories),
        "tokens": sum(trajectory.tokens for trajectory in trajectories),
        "cost_micros": sum(trajectory.spent_micros for trajectory in trajectories),
        "latency_ms": sum(trajectory.duration_ms for trajectory in trajectories),
        "proposed": sum(receipt.op not in ("NONE", "EVICT") for receipt in reflected.receipts),
        "taken": sum(receipt.taken and receipt.op != "EVICT" for receipt in reflected.receipts),
        "reflected": report.reflected.as_dict() if report.reflected else {},
        "tools": {
            one["tool"]: {
                "calls": one["calls"],
                "tokens": one["tokens"],
                "latency_ms": one["latency_ms"] * one["calls"],
                "cost_micros": round(one["cost_usd"] * 1e6),
            }
            for one in tool_stats(trajectories)
        },
    }


def added(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Both together: numbers are summed, mappings likewise, inside of each other."""
    result = dict(a)
    for name, value in b.items():
        mine = result.get(name)
        if isinstance(value, Mapping):
            result[name] = added(mine or {}, value)
        else:
            result[name] = (mine or 0) + value
    return result
