"""Trajectories in and out of PostgreSQL: one COPY a batch, and back into the values that the trainer knows.

What is read back is bit-identical in every number that the algorithm uses (JSON keeps the shortest form that
parses to the same double), so an update can be redone from stored trajectories.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from typing import Any

import orjson
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from agentcore_site.encryption.columns import Sealer
from agentcore_site.ids import derived
from agentcore_site.lib.database import copying
from agentcore_site.lib.statistics import finite_or_none
from agentcore_site.lib.texts import plain
from experiences.models import GroupRecord, TrajectoryRecord
from experiences.privacy import is_clean, redact, redact_value
from experiences.rollouts.types import RolloutKey, Step, Trajectory, TrajectoryGroup

TABLE = TrajectoryRecord._meta.db_table
COLUMNS = ", ".join(field.attname for field in TrajectoryRecord._meta.concrete_fields)
GROUP_COLUMNS = ", ".join(field.attname for field in GroupRecord._meta.concrete_fields if not field.primary_key)
# While hosts of two releases work, the older one reads of a step what it knows.
STEP_FIELDS = frozenset(field.name for field in fields(Step))


@dataclass(frozen=True)
class TrajectoryScope:
    """Job, agent and purpose of trajectories: everything in a row that is not of the rollout itself."""

    job_id: uuid.UUID
    organization_id: uuid.UUID
    agent_id: uuid.UUID
    month: date
    purpose: str = "training"
    arm: str = ""
    line: str = ""

    def id_of(self, key: RolloutKey) -> uuid.UUID:
        """The one id that this rollout can have: keeping it twice is impossible."""
        return derived(self.job_id, self.arm, self.line, *key)


def trajectories_write(owner: TrajectoryScope, trajectories: Sequence[Trajectory]) -> None:
    """Appends trajectories by one COPY. Call it inside a fenced transaction."""
    if not trajectories:
        return
    lines = b"".join(_lines(owner, trajectories))
    with copying(f"COPY {partition_of(owner.month)} ({COLUMNS}) FROM STDIN") as copy:
        copy.write(lines)


def trajectories_replace(owner: TrajectoryScope, trajectories: Sequence[Trajectory]) -> None:
    """Writes trajectories over their stored rows, which keep their rewards; those without a row are left out. Call it
    inside a transaction."""
    made = {owner.id_of(trajectory.key): trajectory for trajectory in trajectories}
    rows = _rows_of(owner).filter(id__in=made)
    for row in rows.select_for_update(no_key=True).only("id", "reward", "reward_before_ranking", "components"):
        trajectory = made[row.id]
        trajectory.reward = math.nan if row.reward is None else row.reward
        trajectory.reward_before_ranking = row.reward_before_ranking
        trajectory.components = row.components or trajectory.components
    stored = set(rows.values_list("id", flat=True))
    rows._raw_delete("default")
    trajectories_write(owner, [trajectory for id, trajectory in made.items() if id in stored])


def trajectories_kept(
    owner: TrajectoryScope, *, iteration: int, scenarios: Collection[int] | None = None
) -> dict[RolloutKey, Trajectory]:
    """The rollouts of one iteration (of some scenarios) that were kept before a crash. More of them may follow."""
    partition_ensure(owner.month)
    rows = _rows_of(owner).filter(iteration=iteration)
    if scenarios is not None:
        rows = rows.filter(scenario__in=scenarios)
    return {(value := as_trajectory(row)).key: value for row in rows}


def trajectories_stored(owner: TrajectoryScope, keys: Iterable[RolloutKey]) -> set[RolloutKey]:
    """The rollouts that are stored."""
    ids = {owner.id_of(key): key for key in keys}
    return {ids[one] for one in _rows_of(owner).filter(id__in=ids).values_list("id", flat=True)}


def _rows_of(owner: TrajectoryScope) -> QuerySet[TrajectoryRecord]:
    return TrajectoryRecord.objects.filter(
        month=owner.month, job_id=owner.job_id, purpose=owner.purpose, arm=owner.arm, line=owner.line
    )


def last_kept_iteration(owner: TrajectoryScope) -> int:
    """The highest iteration of which a rollout is kept; -1 for none."""
    rows = TrajectoryRecord.objects.filter(job_id=owner.job_id, month=owner.month, purpose=owner.purpose)
    last = rows.order_by("-iteration").values_list("iteration", flat=True).first()
    return -1 if last is None else int(last)


def groups_write(owner: TrajectoryScope, iteration: int, groups: Sequence[TrajectoryGroup]) -> None:
    """Appends the narrow rows of an iteration's groups: rewards and advantages. Trajectories that were
    written before their group paid get its payment."""
    _rank_stored(owner, groups)
    rows = [
        (
            owner.job_id,
            owner.organization_id,
            iteration,
            group.scenario.index,
            plain(redact(group.scenario.query))[:200],
            group.has_signal,
            [trajectory.success for trajectory in group.trajectories],
            [finite_or_none(trajectory.reward) for trajectory in group.trajectories],
            list(map(float, group.normalized_rewards)),
            list(map(float, group.advantages)),
            orjson.dumps([[round(float(value), 6) for value in steps] for steps in group.step_advantages]).decode(),
        )
        for group in groups
    ]
    if not rows:
        return
    line = f"({', '.join(['%s'] * len(rows[0]))})"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {GroupRecord._meta.db_table} ({GROUP_COLUMNS}) VALUES {', '.join([line] * len(rows))}",  # noqa: S608
            [value for row in rows for value in row],
        )


def _rank_stored(owner: TrajectoryScope, groups: Sequence[TrajectoryGroup]) -> None:
    """Rows that were written before their group was complete get the payment that it learned from."""
    ranked = [trajectory for group in groups for trajectory in group.trajectories if trajectory.ranked]
    if not ranked:
        return
    ids, rewards = (
        [owner.id_of(trajectory.key) for trajectory in ranked],
        [finite_or_none(trajectory.reward) for trajectory in ranked],
    )
    alone = [one.reward_before_ranking for one in ranked]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE experiences_trajectory t"
            " SET reward = ranked.reward, reward_before_ranking = coalesce(t.reward, ranked.alone)"
            " FROM unnest(%s::uuid[], %s::double precision[], %s::double precision[]) AS ranked(id, reward, alone)"
            " WHERE t.month = %s AND t.id = ranked.id AND t.reward_before_ranking IS NULL"
            " AND t.reward IS DISTINCT FROM ranked.reward",
            [ids, rewards, alone, owner.month],
        )


def _alone(row: TrajectoryRecord) -> float:
    """The rollout's reward alone: the group is ranked again when it is used again."""
    paid = row.reward if row.reward_before_ranking is None else row.reward_before_ranking
    return math.nan if paid is None else paid


def partition_ensure(month: date) -> None:
    """Makes the partition of a month if it is not there. Cheap when it is."""
    if not _is_known(month):
        partition_make(month)
        _remember(month)


def partition_make(month: date) -> None:
    with connection.cursor() as cursor:
        # A function of the owner's: the application's role may make no tables.
        cursor.execute("SELECT experiences_trajectory_partition(%s)", [month])


def partition_of(month: date) -> str:
    """The table that the rows of a month are in. COPY goes there: it refuses a table with policies
    (``agentcore_site.row_security``)."""
    name = f"experiences_trajectory_{month:%Y_%m}"
    if _is_known(month):
        return name
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [name])
        [made] = cursor.fetchone()
    if not made:
        return "experiences_trajectory_other"
    _remember(month)
    return name


def _is_known(month: date) -> bool:
    """Older months are asked for each time: they may have been archived since."""
    return month.replace(day=1) in _known_partitions and month >= timezone.now().date().replace(day=1)


def _remember(month: date) -> None:
    transaction.on_commit(partial(_known_partitions.add, month.replace(day=1)))


_known_partitions: set[date] = set()


def as_trajectory(row: TrajectoryRecord) -> Trajectory:
    """The value that was kept, ready to be used in an update again."""
    return Trajectory(
        key=RolloutKey(row.iteration, row.scenario, row.rollout),
        query=row.query,
        steps=[Step(**{name: step[name] for name in step.keys() & STEP_FIELDS}) for step in row.steps],
        success=row.success,
        outcome=row.outcome,
        reward=_alone(row),
        components=row.components,
        evidence=row.evidence,
        truncated=row.truncated,
        error=row.error,
        policy_version=row.policy_version,
        model=row.model,
        started_at=row.created_at.timestamp(),
        duration_ms=row.duration_ms,
    )


# -- COPY's text format ------------------------------------------------------------------------------------------------


def _lines(owner: TrajectoryScope, trajectories: Iterable[Trajectory]) -> Iterator[bytes]:
    head = f"{owner.month}\t{owner.organization_id}\t{owner.agent_id}\t{owner.job_id}\t{owner.purpose}"
    head = f"{head}\t{owner.arm}\t{owner.line}"
    sealer = Sealer(owner.organization_id)
    for original in trajectories:
        one = without_personal_data(original)
        key = one.key
        id = owner.id_of(key)
        fields = (
            f"{id}\t{head}\t{key.iteration}\t{key.scenario}\t{key.rollout}\t{_text(one.query)}"
            f"\t{'t' if one.success else 'f'}\t{one.outcome!r}\t{_number(finite_or_none(one.reward))}"
            f"\t{_number(one.reward_before_ranking)}"
            f"\t{len(one.steps)}\t{'t' if one.truncated else 'f'}\t{_text(one.error)}\t{one.tokens}\t{one.cost_micros}"
            f"\t{one.duration_ms:.3f}\t{_text(one.policy_version)}\t{_text(one.model)}"
        )
        steps = sealer.json(TABLE, "steps", id, _json([step_json(step) for step in one.steps]))
        columns = (part.replace(b"\\", b"\\\\") for part in (_json(one.components), _json(one.evidence), steps))
        yield b"\t".join((fields.encode("utf-8"), *columns, _moment(one.started_at) + b"\n"))


def _number(value: float | None) -> str:
    return "\\N" if value is None else repr(value)


def without_personal_data(trajectory: Trajectory) -> Trajectory:
    """The trajectory as it may be stored; the same object where nothing had to go.

    What was changed is in its evidence under "redacted".
    """
    if _is_clean(trajectory):
        return trajectory
    changes: dict[str, Any] = {}
    for name in ("query", "error", "evidence", "components"):
        value = getattr(trajectory, name)
        if (kept := redact_value(value)) is not value:
            changes[name] = kept
    steps = [_step_without(step) for step in trajectory.steps]
    # Captured tokens say the same as the texts do, also what left those: none of a rollout's are kept then.
    steps = [replace(step, sampled="") if step.sampled else step for step in steps]
    if any(new is not old for new, old in zip(steps, trajectory.steps, strict=True)):
        changes["steps"] = steps
    evidence = changes.get("evidence", trajectory.evidence)
    return replace(trajectory, **(changes | {"evidence": {**evidence, "redacted": sorted(changes)}}))


def _is_clean(one: Trajectory) -> bool:
    own = is_clean(one.query) and is_clean(one.error) and is_clean(one.evidence) and is_clean(one.components)
    return own and all(is_clean(step.state) and is_clean(step.action) and is_clean(step.result) for step in one.steps)


def _step_without(step: Step) -> Step:
    state, action, result = redact_value(step.state), redact_value(step.action), redact_value(step.result)
    if state is step.state and action is step.action and result is step.result:
        return step
    return replace(step, state=state, action=action, result=result)


def step_json(step: Step) -> dict[str, Any]:
    """A step as it is stored and exported; what is at its default is left out."""
    value: dict[str, Any] = {
        "state": step.state,
        "action": step.action,
        "result": step.result,
        "timestamp": round(step.timestamp, 3),
        "duration_ms": round(step.duration_ms, 3),
        "reward": float(step.reward),
    }
    if step.choice is not None:
        value["choice"] = int(step.choice)
    if step.logprob is not None:
        value["logprob"] = float(step.logprob)
    if step.tokens:
        value["tokens"] = step.tokens
    if step.cost_micros:
        value["cost_micros"] = step.cost_micros
    if step.sampled:
        value["sampled"] = step.sampled
    if step.call:
        value["call"] = step.call
    if step.parent is not None:
        value["parent"] = step.parent
    return value


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(str(key)): _clean_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_value(item) for item in value]
    if isinstance(value, float | int | bool) or value is None:
        return value
    return plain(str(value))


def _json(value: Any) -> bytes:
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except (TypeError, orjson.JSONEncodeError):
        raw = orjson.dumps(_clean_value(value))
    if b"\\u0000" in raw:  # JSONB refuses NUL
        raw = orjson.dumps(_clean_value(value))
    return raw


def _text(value: str) -> str:
    if value.isalnum() or not value:
        return value
    value = plain(value) if "\x00" in value or not value.isascii() else value
    if "\\" in value or "\n" in value or "\t" in value or "\r" in value:
        value = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return value


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _moment(seconds: float) -> bytes:
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1e6):06d}+00".encode()
