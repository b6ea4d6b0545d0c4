"""Retention of checkpoints, runs and their iterations."""

from __future__ import annotations

from contextlib import suppress

from agentcore_site.lib.object_storage import ObjectsUnavailable
from agentcore_site.lib.retention import RetentionRule, kept, rules
from training.models import PolicyCheckpoint
from training.services.checkpoints import KEEP_BEST, KEEP_DAYS, checkpoints_move, expired, retention, strays_delete

RUNS = ("training_trainingrun", "training_iteration", "training_epoch")


def _age() -> int:
    checkpoints_move()  # those that waited for the object storage
    gone = retention()
    with suppress(ObjectsUnavailable):  # the next time
        strays_delete()
    return gone


rules.register("checkpoints")(
    RetentionRule(
        (PolicyCheckpoint._meta.db_table,),
        f"Deleted after {KEEP_DAYS} days, but the best {KEEP_BEST} and the newest of an agent, the best of a run, what"
        " was released, promoted or tagged, and what a run began with.",
        due=lambda: len(expired()),
        age=_age,
    )
)
kept("runs, iterations and epochs", "Kept: what was learned, and how.", *RUNS)
kept("judgements of graders", "Kept as long as their job.", "training_gradersample", "training_graderjudgement")
kept("comments and pins", "Kept as long as their job.", "training_jobcomment", "training_jobpin")
