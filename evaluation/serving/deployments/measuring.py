"""The suites that an agent's gate asks for, and which of them a release still lacks."""

from __future__ import annotations

from typing import NamedTuple

from evaluation.serving.deployments.gate import rule_of
from evaluation.serving.models import Release, SuiteKind, SuiteRun, SuiteVersion
from evaluation.serving.suites.selectors import latest_results


class MissingSuite(NamedTuple):
    """A suite without a completed run that counts ``of`` a release; ``last``: its newest run, if there is any."""

    version: SuiteVersion
    of: Release
    last: SuiteRun | None


def suites_missing(release: Release, current: Release | None) -> list[MissingSuite]:
    """Of the newest version of each suite that the gate asks for: those that count for the release not yet, and those
    by which it is compared for the current one."""
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
        known = {one.suite for one in latest_results(of).suites if one.newest}
        for version in asked:
            if version.suite.name not in known:
                runs = SuiteRun.objects.filter(agent=of.agent_id, digest=of.digest, version=version)
                found.append(MissingSuite(version, of, runs.select_related("job").order_by("-job__created_at").first()))
    return found
