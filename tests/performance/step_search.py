"""The search inside of steps: the first page of what is found among 200,000 trajectories, as a member sees it."""

from __future__ import annotations

import time
from collections import Counter
from statistics import median
from typing import Final

from django.db import connection, transaction

from agentcore_site.lib import row_scope
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.roles import Role
from experiences.rollouts.types import Trajectory
from experiences.trajectories import storage
from experiences.trajectories.filters import trajectories_filtered
from experiences.trajectories.selectors import trajectories_visible
from tests import factories
from tests.performance.archive import job_stored
from tests.performance.export import COPIES, multiplied
from tests.performance.storage import MONTH, emptied, trajectories
from tests.performance.table import Figure, at_most
from tests.support.owner import as_owner

RARE: Final = "quetzal"
PAGE, COUNTED, TIMES = 51, 10_000, 5
LIMIT_MS: Final = 100


def pages() -> list[Figure]:
    home = factories.OrganizationFactory(slug="searching", name="Searching")
    user = factories.MembershipFactory(organization=home, role=Role.OPERATOR).user
    agent = factories.AgentFactory(organization=home, created_by=user)
    with transaction.atomic():
        storage.partition_make(MONTH)
    emptied()
    played = trajectories()
    step = played[len(played) // 2].steps[0]
    step.result = {**step.result, "output": f"a {RARE} at noon"}
    multiplied(job_stored(agent, MONTH, played).job_id)
    with as_owner(), connection.cursor() as cursor:  # VACUUM empties the indexes' lists of what waits
        cursor.execute("VACUUM ANALYZE experiences_trajectory")
    tool, failed, error = _common(played)
    rows = len(played) * COPIES
    figures = []
    for about, filters in (
        (f"a word that {COPIES} have", {"words": RARE}),
        ("a tool that most used", {"tool": tool}),
        ("a tool that failed", {"failed_tool": failed}),
        ("a word of errors that many have", {"step_error": error}),
    ):
        found, ms, counting = _asked(Actor(user), filters)
        assert found, filters
        about = f"first page of {rows:,} trajectories with {about}"
        figures.append(at_most("S6", about, ms, LIMIT_MS, "ms", digits=1))
        figures.append(at_most("S6", f"the same counted, to {COUNTED:,} at most", counting, 1_000, "ms", digits=0))
    return figures


def _common(played: list[Trajectory]) -> tuple[str, str, str]:
    """The tool that most steps used, that which failed most often, and the most frequent word of their errors."""
    used: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    said: Counter[str] = Counter()
    for one in played:
        for step in one.steps:
            if step.action.get("type") != "tool":
                continue
            name = str(step.action["tool"])
            used[name] += 1
            if not step.result.get("success"):
                failed[name] += 1
                said.update(word for word in str(step.result.get("error") or "").split() if word.isalpha())
    return used.most_common(1)[0][0], failed.most_common(1)[0][0], said.most_common(1)[0][0]


def _asked(actor: Actor, filters: dict[str, str]) -> tuple[int, float, float]:
    """The number of rows on the first page, and the milliseconds of the page and of the count: medians."""
    pages, counts = [], []
    found = 0
    with row_scope.only(*actor.organization_ids):
        rows = trajectories_filtered(trajectories_visible(actor), actor, dict(filters)).order_by("-created_at", "-id")
        for _ in range(TIMES):
            began = time.perf_counter()
            found = len(rows.defer("steps")[:PAGE])
            pages.append(time.perf_counter() - began)
            began = time.perf_counter()
            rows.order_by().only("month")[:COUNTED].count()
            counts.append(time.perf_counter() - began)
    return found, 1e3 * median(pages), 1e3 * median(counts)
