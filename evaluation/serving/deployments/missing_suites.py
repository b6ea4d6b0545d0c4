"""The suites that an agent's gate requires, and those that have no result for a release yet."""

from __future__ import annotations

from typing import NamedTuple

from evaluation.serving.deployments.gate import rule_of
from evaluation.serving.models import Release, SuiteKind, SuiteRun, SuiteVersion
from evaluation.serving.suites.selectors import latest_results


class MissingSuite(NamedTuple):
    """A suite ``version`` without a completed run for the release ``of``; ``last``: its newest run, if any."""

    version: SuiteVersion
    of: Release
    last: SuiteRun | None


def suites_missing(release: Release, current: Release | None) -> list[MissingSuite]:
    """The missing suites, in the newest version of each: those that the release needs, and those of the current release
    that the gate compares with."""
    rule = rule_of(release.agent)
    newest = SuiteVersion.objects.filter(
        suite__organization_id=release.organization_id, suite__archived_at=None
    ).select_related("suite")
    versions = list(newest.order_by("suite_id", "-number").distinct("suite_id"))
    named = [one for one in versions if one.suite.name in rule.suites]
    safety = [one for one in versions if rule.safety and one.suite.kind == SuiteKind.SAFETY and one not in named]
    wanted = [(release, [*named, *safety])] + ([(current, named)] if current is not None else [])
    found = []
    for of, asked in wanted:
        known = {suite.suite for suite in latest_results(of).suites if suite.newest}
        for version in asked:
            if version.suite.name not in known:
                runs = SuiteRun.objects.filter(agent=of.agent_id, digest=of.digest, version=version)
                found.append(MissingSuite(version, of, runs.select_related("job").order_by("-job__created_at").first()))
    return found
