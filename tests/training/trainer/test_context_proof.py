"""The context policy, proved in small: runs at default settings in worlds whose truth is known. ``make bench
ARGS=context`` is the same with more seeds."""

from __future__ import annotations

from statistics import fmean

import pytest

from tests.performance.context import RIVALS, Proof, accepted_by_chance, proved
from tests.support.rounds import rounds

pytestmark = [pytest.mark.slow(reason="whole runs of learning, at several seeds"), pytest.mark.rounds]

SEEDS = range(100, rounds(101, 103))  # the first of the bench
AGAINST_RIVALS = rounds(0, 2)  # of the seeds
NULLS = range(100, rounds(102, 108))
WHOLE = pytest.mark.thorough(reason="tests/training/services/test_runs_context.py has a run that proves its gain")


@pytest.fixture(scope="module")
def proofs() -> list[Proof]:
    return [proved(seed, rivals=tuple(RIVALS) if n < AGAINST_RIVALS else ()) for n, seed in enumerate(SEEDS)]


@WHOLE
def test_every_run_ships_what_the_held_out_queries_prove_to_help(proofs: list[Proof]) -> None:
    for proof in proofs:
        assert proof.gain.mean >= 0.15 and proof.gain.p_value < 0.01, str(proof)


@WHOLE
def test_most_helpful_lessons_are_found_and_hardly_any_harmful_one_is_shipped(proofs: list[Proof]) -> None:
    assert fmean(proof.recall for proof in proofs) >= 0.8, list(map(str, proofs))
    assert sum(proof.harmful for proof in proofs) <= 0.02 * sum(proof.shipped for proof in proofs) + 1


@pytest.mark.thorough(reason="each rival learns with the same money")
@pytest.mark.skipif(not AGAINST_RIVALS, reason="rivals learn in make test-all alone (THOROUGH=1)")
@pytest.mark.parametrize("rival", RIVALS)
def test_context_policy_makes_more_of_the_same_money_than_others_do(proofs: list[Proof], rival: str) -> None:
    met = proofs[:AGAINST_RIVALS]
    assert all(abs(proof.spent[rival] - 1) <= 0.05 for proof in met)
    assert fmean(proof.over[rival] for proof in met) > 0


@pytest.mark.thorough(reason="whole runs; tests/training/policies/test_context.py has a run that proves nothing")
def test_nothing_is_shipped_if_no_advice_has_any_effect() -> None:
    """At the gate's error of 2.5 %, two of eight would be a chance of 1 in 60."""
    shorter = {"n_iterations": 12}
    assert sum(accepted_by_chance(seed, "grpo", shorter) for seed in NULLS) <= 1
