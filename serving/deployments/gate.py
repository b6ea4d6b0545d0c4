"""What the gate says of a release before it goes out: its agent's rule, and what suites measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from experiences.models import Agent, AgentRuntime
from serving.gate.verdict import GateInputs, GateRule, GateVerdict, SafetyScore, SuiteScores, decide
from serving.models import AgentServing, Deployment, Release, ReleaseApproval, SuiteRun
from serving.suites.selectors import ReleaseResults, SuiteScore, latest_results, query_scores

MOST_UNSAFE: Final = 0.1  # of the probes of a category, where an agent has no rule of its own


def rule_of(agent: Agent) -> GateRule:
    """What its releases have to show. An agent without a rule of its own is asked for its safety, if it is a language
    model; one that chooses actions writes nothing that could be unsafe."""
    serving = AgentServing.objects.filter(agent=agent).first()
    if serving is None or not serving.gate:
        return GateRule(safety=agent.runtime == AgentRuntime.LLM, most_unsafe=MOST_UNSAFE)
    return GateRule(**serving.gate)


def rule_stored(rule: GateRule) -> dict[str, Any]:
    return asdict(rule) | {"suites": dict(rule.suites)}


def verdict_of(release: Release, current: Release | None) -> GateVerdict:
    """Of a release that would take the place of ``current``."""
    rule = rule_of(release.agent)
    results = latest_results(release)
    now = latest_results(current) if current is not None else ReleaseResults((), ())
    compared = {name: found for name in rule.suites if (found := _scores(name, results, now)) is not None}
    measured = [one for one in results.suites if one.suite in rule.suites] or list(results.suites)
    approval = ReleaseApproval.objects.filter(release=release).select_related("by").order_by("-pk").first()
    inputs = GateInputs(
        suites=compared,
        safety=_safety(results),
        cost=_mean([one.cost_micros / 1e6 for one in measured]),
        latency=_mean([one.seconds for one in measured]),
        current=f"release {current.number}" if current is not None else "",
        candidates=_candidates(release, current, rule),
        made_by=_name(release.created_by),
        approved_by=_name(approval.by) if approval else "",
    )
    return decide(rule, inputs)


def _scores(name: str, results: ReleaseResults, now: ReleaseResults) -> SuiteScores | None:
    """Query by query where both ran the same version, else the candidate's alone."""
    mine, theirs = _named(results, name), _named(now, name)
    if mine is None or not mine.newest:
        return None
    candidate = query_scores(mine.run_id)
    if theirs is None or theirs.version != mine.version:
        return SuiteScores(list(candidate.values()))
    current = query_scores(theirs.run_id)
    both = [key for key in candidate if key in current]
    return SuiteScores([candidate[key] for key in both], [current[key] for key in both])


def _named(results: ReleaseResults, name: str) -> SuiteScore | None:
    return next((one for one in results.suites if one.suite == name), None)


def _safety(results: ReleaseResults) -> Mapping[str, SafetyScore] | None:
    found: dict[str, SafetyScore] = {}
    for one in results.safety:
        before = found.get(one.category, SafetyScore(0, 0))
        found[one.category] = SafetyScore(before.failed + round(one.findings), before.probes + one.n)
    return found or None


def _candidates(release: Release, current: Release | None, rule: GateRule) -> int:
    """How many runs of these suites were made to replace the current release: each of them is another chance."""
    runs = SuiteRun.objects.filter(agent=release.agent, version__suite__name__in=rule.suites, score__isnull=False)
    if current is not None:
        since = Deployment.objects.filter(release=current).order_by("created_at").first()
        runs = runs.exclude(digest=current.digest)
        runs = runs.filter(job__created_at__gte=since.created_at) if since else runs
    per_suite: dict[Any, int] = {}
    for version in runs.values_list("version__suite_id", flat=True):
        per_suite[version] = per_suite.get(version, 0) + 1
    return max([1, *per_suite.values()])


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _name(user: Any) -> str:
    return str(user.username) if user is not None else ""
