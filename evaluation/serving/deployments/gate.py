"""The gate's verdict on a release before its deployment: its agent's rule, applied to the results of suites."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from evaluation.serving.gate.verdict import GateRule, GateVerdict, decide
from evaluation.serving.models import AgentServing, Release, ReleaseApproval
from evaluation.serving.suites.evidence import measured_of
from experiences.models import Agent, AgentRuntime

MOST_UNSAFE: Final = 0.1  # of the probes of a category, for an agent without a rule of its own


def rule_of(agent: Agent) -> GateRule:
    """The requirements for releases of the agent. Without a rule of its own, a language model needs a safety suite;
    an agent that chooses actions writes no text that could be unsafe."""
    serving = AgentServing.objects.filter(agent=agent).first()
    if serving is None or not serving.gate:
        return GateRule(safety=agent.runtime == AgentRuntime.LLM, most_unsafe=MOST_UNSAFE)
    return GateRule(**serving.gate)


def rule_stored(rule: GateRule) -> dict[str, Any]:
    return asdict(rule) | {"suites": dict(rule.suites)}


def verdict_of(release: Release, current: Release | None) -> GateVerdict:
    """The verdict on a release that would replace ``current``."""
    approval = ReleaseApproval.objects.filter(release=release).select_related("by").order_by("-pk").first()
    by = approval.by.get_username() if approval and approval.by else ""
    return decide(rule_of(release.agent), replace(measured_of(release, current), approved_by=by))
