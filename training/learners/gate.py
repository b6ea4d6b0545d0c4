"""The gate: the context outside of training changes only when queries that were kept out of training support it.

The gate decides once, at the end of a run: the run ships a context that is shown to be better than the initial one, or
the initial one. With ``grpo`` the rewards of training choose the candidate. With ``tfgrpo`` a search does, step by step
(``keep``), on training queries. The selection queries take part in neither, since data that chose a candidate are no
evidence for it.

The decision is a group-sequential test (``training.algorithm.sequential``): more samples are paid for only while both
outcomes are possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from training.algorithm.arrays import FloatArray
from training.algorithm.gain_of_more import shrunk
from training.algorithm.inference import PairedDifference, paired_difference, per_query
from training.algorithm.sequential import InterimAnalysis, Sequential
from training.policies.context import ContextPolicy
from training.policies.query_rule import Choice, QueryRule
from training.policies.query_words import QueryWords
from training.schema import GRPOConfig
from training.trainer.play import Played
from training.trainer.reports import GateReport
from training.trainer.selection import RESAMPLES
from training.trainer.setup import TrainerSetup
from training.trainer.state import TrainerState

NOTHING_NEW = "it is what the run began with"
NOT_SHOWN = "it is not shown to be better than what the run began with"
SHOWN = "it is better than what the run began with"
LOOKS_NO_WORSE = "it looks no worse than what the search kept before"
LOOKS_WORSE = "it looks worse than what the search kept before"

POWER = 0.8  # target power, where the required number of queries is reported

# Plays so many more samples of each selection query: the first argument is how many there are.
More = Callable[[int, int], Played]


@dataclass(frozen=True, slots=True)
class Compared:
    """Samples of the candidate, samples of the initial context (n, k), and the last interim analysis of both. Counts
    the analyses taken and planned (0 if there was no comparison)."""

    played: Played
    before: FloatArray
    analysis: InterimAnalysis
    analyses: int
    most: int


def design(config: GRPOConfig) -> Sequential:
    context = config.context
    return Sequential(context.gate_steps, context.validation_samples, context.gate_alpha)


def searches(config: GRPOConfig) -> bool:
    """Whether a search chooses the candidate, step by step."""
    return config.algorithm == "tfgrpo"


def ends_step(setup: TrainerSetup, iteration: int) -> bool:
    """Whether a step of the search ends here: every ``search_every`` iterations, and at the end of each epoch."""
    if not searches(setup.config):
        return False
    return setup.ends_epoch(iteration) or iteration % setup.config.context.search_every == 0


def compare(config: GRPOConfig, state: TrainerState, played: Played, *, more: More, more_of_start: More) -> Compared:
    """Tests the candidate against the initial context, and draws further samples of both while the test is open.

    ``state.baseline_success`` grows with what was asked of the start.
    """
    assert state.baseline_success is not None
    planned = design(config)
    analysis, before, at = InterimAnalysis(0.0, 1.0, "open"), state.baseline_success, 0
    while analysis.decision == "open" and at < planned.analyses:
        at += 1
        wanted = at * planned.step
        if (have := played.success.shape[1]) < wanted:
            played = played.followed_by(more(have, wanted - have))
        if (have := state.baseline_success.shape[1]) < wanted:
            state.baseline_success = np.hstack([state.baseline_success, more_of_start(have, wanted - have).success])
        before = state.baseline_success[:, :wanted]
        analysis = planned.analyse(per_query(played.success[:, :wanted]) - per_query(before), at)
    return Compared(played, before, analysis, at, planned.analyses)


def unchanged(played: Played) -> Compared:
    """Result for a candidate that equals the initial context: no comparison, no cost."""
    return Compared(played, played.success, InterimAnalysis(0.0, 1.0, "not_better"), 0, 0)


def keep(
    setup: TrainerSetup, state: TrainerState, policy: ContextPolicy, candidate: Choice, played: Played
) -> GateReport:
    """Ends a step of the search: it continues with this context or returns to the one that it kept before, by their
    success. Nothing is shipped.

    ``played``, ``state.search_start`` and ``state.current_success`` are of the search's own queries.
    """
    assert state.search_start is not None and state.current_success is not None
    before, against_kept = state.search_start, _paired(played.success, state.current_success)
    against_start = Sequential(1, 1, setup.config.context.gate_alpha).analyse(
        per_query(played.success) - per_query(before), 1
    )
    report = partial(
        _report(setup, state, policy, candidate, played, against_kept),
        current=policy.kept,
        current_rate=float(state.current_success.mean()),
        gain=played.success_rate - float(before.mean()),
        p_value=against_start.p_value,
        accepted=False,
        final=False,
    )
    if against_kept.mean < -setup.config.context.gate_margin:
        return report(rolled_back=policy.roll_back(), why=LOOKS_WORSE)
    policy.keep(candidate)
    state.current_success = played.success
    return report(kept=True, why=LOOKS_NO_WORSE)


def decide(
    setup: TrainerSetup, state: TrainerState, policy: ContextPolicy, candidate: Choice, compared: Compared
) -> GateReport:
    """Ends a run: ships the candidate, or leaves the initial context."""
    difference, current = _paired(compared.played.success, compared.before), policy.shipped
    report = _report(setup, state, policy, candidate, compared.played, difference)
    accepted = compared.analysis.decision == "better"
    rolled_back: list[str] = []
    unsure = unsure_of(policy)
    needs = None if accepted or difference.mean <= 0 else design(setup.config).queries_for(difference.mean, POWER)
    if accepted:
        policy.ship(candidate)
    elif not policy.selects:
        rolled_back = policy.back_to_start()
    return report(
        current=current,
        current_rate=float(compared.before.mean()),
        gain=difference.mean,
        p_value=compared.analysis.p_value,
        accepted=accepted,
        why=SHOWN if accepted else NOT_SHOWN if compared.analyses else NOTHING_NEW,
        rolled_back=rolled_back,
        looks=compared.analyses,
        most_looks=compared.most,
        needs=needs,
        unsure=unsure,
    )


def unsure_of(policy: ContextPolicy) -> list[tuple[float, float, int]]:
    """(mean, deviation, rollouts) of the effect of each live lesson; empty where lessons are not measured."""
    if not policy.selects:
        return []
    known, live = policy.estimate(), policy.live
    found = known.beta[live], known.error[live], policy.effects.rollouts[live]
    if not policy.words.size:  # a regression without a prior
        found = shrunk(*found)
    return [(round(float(b), 6), round(float(e), 6), round(float(n))) for b, e, n in zip(*found, strict=True)]


def _report(
    setup: TrainerSetup,
    state: TrainerState,
    policy: ContextPolicy,
    candidate: Choice,
    played: Played,
    against_current: PairedDifference,
) -> partial[GateReport]:
    """The report of a candidate that search steps and the gate share. It is made before the library changes: a library
    that is rolled back has other texts."""
    return partial(
        GateReport,
        iteration=state.iteration,
        epoch=setup.epoch(state.iteration),
        candidate=candidate.handles,
        n_queries=played.success.shape[0],
        samples=played.success.shape[1],
        candidate_rate=played.success_rate,
        difference=against_current.mean,
        low=against_current.low,
        high=against_current.high,
        **_context_size(setup, policy, candidate),
    )


def _context_size(setup: TrainerSetup, policy: ContextPolicy, choice: Choice) -> dict[str, Any]:
    """Mean tokens and lessons over the training queries, and where each lesson holds, as far as that is known."""
    queries = [scenario.query for scenario in setup.train]
    candidate = policy.as_candidate(choice)
    contexts = [candidate.lessons_for(query) for query in queries]
    n = max(len(contexts), 1)
    tokens = sum(lesson.tokens for lessons in contexts for lesson in lessons) / n
    found: dict[str, Any] = {"tokens": round(tokens), "lessons_each": sum(map(len, contexts)) / n}
    if (known := choice.rule or _known(policy)) is not None:
        found["where"] = where(choice, known, queries)
    return found


def _known(policy: ContextPolicy) -> QueryRule | None:
    return policy.rule() if policy.selects and policy.words.size and policy.live.any() else None


def where(choice: Choice, known: QueryRule, queries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each lesson of the choice the ``share`` of these queries in which it holds. Its mean ``effect`` on them comes
    with the standard ``error``, and its effect on the ``others`` if there are any. A lesson holds where the choice
    gives it, and if that is everywhere, where its likeliest word occurs; ``terms`` are hashes of that word."""
    features = known.features.all(queries)
    mean, sd = known.effects.at(features)
    contexts = [set(choice.handles_for(query)) for query in queries]
    found = {}
    for at, handle in enumerate(known.handles):
        there = np.array([handle in handles for handles in contexts], dtype=np.bool_)
        word = int(np.argmax(known.effects.spread[at])) if isinstance(known.features, QueryWords) else 0
        if word and choice.rule is None:
            there &= features[:, word - 1] == 1.0
        if not there.any():
            continue
        found[handle] = {
            "share": float(there.mean()),
            "effect": float(mean[there, at].mean()),
            # Neighbours' errors go together, so that a mean over them is about as uncertain as one of them.
            "error": float(sd[there, at].mean()),
            **({} if there.all() else {"others": float(mean[~there, at].mean())}),
            **({"terms": known.features.terms_of(word - 1)} if word and isinstance(known.features, QueryWords) else {}),
        }
    return found


def _paired(treatment: FloatArray, control: FloatArray) -> PairedDifference:
    return paired_difference(treatment, control, resamples=RESAMPLES)
