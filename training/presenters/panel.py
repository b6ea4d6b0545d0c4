"""Head of a job's page: the strip of figures and the state of its buttons. Also for shared pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from agentcore_site.jobs.models import Status
from agentcore_site.jobs.selectors import requested_at
from training.models import TrainingRun
from training.selectors.runs import done_criteria, eta_seconds, never_solved, run_verdict

# The curves: key, title, and what they mean in a few words. The surrogate loss is not among them: it is about zero by
# construction.
CHARTS: Final = (
    ("success", "Success rate", "Training rollouts (mean of 10 iterations) and the selection queries with 95 % band."),
    ("reward", "Reward", "Mean reward of training rollouts; the line is the mean of 10 iterations."),
    ("cost", "Cost", "Spent so far, against the budget."),
    ("entropy", "Entropy and KL", "Uncertainty of the policy, and its change in one update."),
    ("signal", "Groups without signal", "All rollouts of the group got the same reward: nothing to learn from."),
    ("steps", "Steps per rollout", "Mean length of training rollouts."),
)
# For an agent with a context: its size instead of the length of rollouts.
CONTEXT: Final = ("context", "Context", "Lessons that are tried, and their mean tokens per rollout.")
AXES: Final = (("n", "Iterations"), ("trajectories", "Trajectories"), ("cost_usd", "Dollars"), ("seconds", "Time"))


@dataclass(frozen=True)
class Success:
    """The success rate: proven on held-out queries, else measured on the selection queries."""

    source: str
    baseline: float
    now: float
    low: float
    high: float


def head(run: TrainingRun) -> dict[str, Any]:
    """Everything that moves while the job runs, as template context."""
    job = run.job
    criteria = done_criteria(run) if job.status == Status.COMPLETED else []
    return {
        "run": run,
        "job": job,
        "verdict": run_verdict(run),
        "never_solved": never_solved(run),
        "tone": tone(run),
        "success": success(run),
        "signal": _signal(run),
        "rate": run.trajectories / (job.worked_ms / 1000) if job.worked_ms else None,
        "eta": eta_seconds(run),
        "expected": expected_usd(run),
        "spent_share": min(1.0, run.spent_micros / run.limit_micros) if run.limit_micros else 0.0,
        "took": job.worked_ms / 1000,
        "criteria": criteria,
        "n_met": sum(bool(one["met"]) for one in criteria),
        "asked": job.requested,
        "asked_at": requested_at(job),
        "proving": proving(run),
        "continued_by": run.continued_by.select_related("job").order_by("-job__created_at"),
    }


def proving(run: TrainingRun) -> bool:
    """Whether the run has ended well and its held-out proof is still to come."""
    return run.job.status == Status.COMPLETED and not run.verdict


def watching(run: TrainingRun) -> bool:
    """True if anything on the page still changes without a person."""
    return run.job.active or proving(run)


def curves(*, shared: bool = False, learns_context: bool = False) -> dict[str, Any]:
    """The charts of the page; a shared page has the first one only."""
    own = (*CHARTS[:-1], CONTEXT) if learns_context else CHARTS
    return {"charts": CHARTS[:1] if shared else own, "axes": AXES}


def success(run: TrainingRun) -> Success | None:
    if run.verdict.get("success_rate") is not None:
        found, low, high, source = run.verdict, "success_low", "success_high", "held-out queries"
    elif run.selection and run.verdict.get("changed") is not False:
        found, low, high, source = run.selection, "low", "high", "selection queries"
    else:
        return None
    return Success(source, found["baseline_success_rate"], found["success_rate"], found[low], found[high])


def tone(run: TrainingRun) -> str:
    """good, bad or plain: the colour of the verdict. A difference within its interval has no colour."""
    if run.job.status == Status.FAILED:
        return "bad"
    if run.learns_context and run.verdict.get("improvement") is None:
        return "plain"  # what was tried on the selection queries is for the gate to judge
    found = run.verdict if run.verdict.get("improvement") is not None else run.selection
    low = found.get("low" if found is run.verdict else "improvement_low")
    high = found.get("high" if found is run.verdict else "improvement_high")
    if low is not None and low > 0:
        return "good"
    return "bad" if high is not None and high < 0 else "plain"


def expected_usd(run: TrainingRun) -> float | None:
    """Planned cost of the whole job in dollars; None after its end, or if it is free."""
    return run.estimate.get("cost_usd") or None if run.job.active else None


def _signal(run: TrainingRun) -> float | None:
    """Share of the latest iteration's groups that had a learning signal."""
    without = run.metrics.get("frac_reward_zero_std")
    return None if without is None else 1.0 - float(without)
