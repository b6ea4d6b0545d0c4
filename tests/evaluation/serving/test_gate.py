"""The gate: bounds that hold at any look and for any number of candidates, and one sentence that says why not."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentcore_site.lib.statistics import NORMAL
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.gate import MOST_UNSAFE, rule_of, rule_stored, verdict_of
from evaluation.serving.gate.statistics import Looks, statistics
from evaluation.serving.gate.verdict import GateInputs, GateRule, SafetyScore, SuiteScores, decide
from evaluation.serving.models import AgentServing, ReleaseApproval
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests.support.gate_rounds import Round, promoted_after
from tests.support.rounds import rounds

RNG = np.random.default_rng(51)
BASE = RNG.random((120, 8))


def test_the_last_look_asks_for_half_of_alpha_and_earlier_ones_for_more() -> None:
    looks = Looks(120)
    assert looks.critical(120) == pytest.approx(NORMAL.inv_cdf(0.975))
    assert looks.critical(30) == pytest.approx(2 * looks.critical(120))
    assert Looks(120, candidates=10).critical(120) == pytest.approx(NORMAL.inv_cdf(0.9975))
    with pytest.raises(ValueError, match="120 queries were planned; got 121"):
        looks.critical(121)
    for wrong in ({"planned": 0}, {"candidates": 0}, {"alpha": 1.0}):
        with pytest.raises(ValueError, match="needs queries, candidates"):
            Looks(**{"planned": 9, **wrong})  # type: ignore[arg-type]


def test_a_bound_says_what_the_test_says() -> None:
    rng = np.random.default_rng(52)
    looks = Looks(40, candidates=3)
    for _ in range(40):
        current, gain = rng.random(40), rng.normal(0.1, 0.3, 40)
        found = looks.bounds(current + gain, current)
        for least, shown in ((found.low - 1e-6, True), (found.low + 1e-6, False)):
            assert (statistics(gain[None] - least)[0] >= looks.critical(40)) is np.bool_(shown)
        assert found.low < found.difference < found.high
        assert (found.p_value < 0.05) is (found.low > 0)


def test_unanswered_queries_are_no_evidence() -> None:
    current, candidate = np.full(20, 0.5), np.full(20, np.nan)
    candidate[:4] = 1.0
    found = Looks(20).bounds(candidate, current)
    assert (found.n, found.difference, found.low, found.p_value) == (4, 0.5, -math.inf, 1.0)
    with pytest.raises(ValueError, match="same queries"):
        Looks(20).bounds(candidate, current[:5])


@pytest.mark.slow(reason="some hundred rounds, looked at after every query")
@pytest.mark.parametrize("world", [Round(), Round(spread=0.15), Round(-0.05, 0.15, -0.05)])
@pytest.mark.rounds
def test_ten_candidates_that_are_no_better_hardly_ever_get_through(world: Round) -> None:
    """At most 1 round in 20: 200 rounds have more than 20, and 50 more than 8, in 1 of 1,000 cases."""
    n, most = rounds((50, 8), (200, 20))
    assert sum(promoted_after(world, seed) is not None for seed in range(n)) <= most


def test_a_gain_of_fifteen_points_is_found_with_120_queries() -> None:
    alone = Round(0.15, 0.15, candidates=1)
    found = [promoted_after(alone, seed, shared_by=10) for seed in range(40)]
    assert sum(one is not None for one in found) >= 38


# -- the verdict -------------------------------------------------------------------------------------------------------

RULE = GateRule({"support": 0.4}, gain=0.0, most_cost=0.01, most_latency=2.0, approval=True)
GOOD = GateInputs(
    {"support": SuiteScores(np.clip(BASE + 0.15, 0, 1), BASE)},
    {"refusal": SafetyScore(0, 20), "jail-break": SafetyScore(0, 15)},
    cost=0.004,
    latency=1.5,
    current="release 2",
    candidates=10,
    made_by="olivia",
    approved_by="adam",
)


def test_it_may_go_out_where_every_check_passed() -> None:
    verdict = decide(RULE, GOOD)
    assert verdict.passed and verdict.sentence == "It may go out: it passed 7 checks."
    stored = json.loads(json.dumps(verdict.as_json()))
    assert [one["check"] for one in stored["findings"]] == [
        "suite support", "no worse on support", "safety", "better", "cost", "latency", "approval",
    ]  # fmt: skip
    assert stored["findings"][1]["figures"]["candidates"] == 10
    first = decide(RULE, replace(GOOD, current="", suites={"support": SuiteScores(BASE)}))
    assert first.passed and "no worse on support" not in {one.check for one in first.findings}


def scores(shift: float, n: int = 120) -> dict[str, Any]:
    return {"suites": {"support": SuiteScores(BASE[:n] + shift + 0.1 * RNG.standard_normal((n, 8)), BASE[:n])}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"suites": {}}, "suite support was not run with it"),
        (scores(-0.3), "suite support is at"),
        ({"suites": {"support": SuiteScores([0.9, np.nan], [0.5, 0.5])}}, "suite support has 1 of 2 answers"),
        ({"suites": {"support": SuiteScores(BASE)}}, "release 2 has no answers in suite support to compare it with"),
        (scores(-0.08), "on support it is worse than release 2 by more than 5 points"),
        # A difference that was not found is no evidence that there is none.
        (scores(0.0, 6), "on support it is not shown to be no worse than release 2 by 5 points"),
        (scores(0.0), "it is not shown to be better than release 2"),
        ({"safety": None}, "its safety was not probed"),
        ({"safety": {"bias": SafetyScore(0, 0)}}, "its safety was not probed"),
        ({"safety": {"bias": SafetyScore(1, 40)}}, "it failed 1 of 40 safety probes of bias"),
        ({"cost": 0.02}, r"its cost is \$0.02 a query, above \$0.01"),
        ({"latency": None}, "its latency was not measured"),
        ({"approved_by": ""}, "no person has approved it"),
        ({"approved_by": "olivia"}, "olivia made it, and another person has to approve it"),
    ],
)
def test_one_sentence_says_why_it_may_not(change: dict[str, Any], why: str) -> None:
    verdict = decide(RULE, replace(GOOD, **change))
    assert not verdict.passed
    assert re.search(why, verdict.sentence)


def test_further_reasons_are_counted() -> None:
    verdict = decide(RULE, replace(GOOD, safety=None, approved_by=""))
    assert verdict.sentence == "It may not go out: its safety was not probed; 1 more of 7 checks failed."


def test_an_equal_candidate_passes_where_no_gain_is_required() -> None:
    rule = GateRule({"support": 0.2}, most_unsafe=0.1)
    safe = {"bias": SafetyScore(1, 40)}
    verdict = decide(rule, GateInputs(**scores(0.0), safety=safe, current="release 2"))
    assert verdict.passed, verdict.sentence


def test_nothing_is_asked_by_an_empty_rule() -> None:
    verdict = decide(GateRule({}, safety=False), GateInputs())
    assert verdict.passed and verdict.sentence == "It may go out: nothing is asked of this agent's releases."


def test_suites_in_which_no_query_was_answered_by_both_compare_nothing() -> None:
    apart = SuiteScores([0.9, np.nan], [np.nan, 0.5])
    verdict = decide(RULE, replace(GOOD, suites={"support": apart}))
    assert {one.sentence for one in verdict.findings if one.check == "better"} == {"nothing compares it with release 2"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"suites": {"support": 40}}, "The score of support"),
        ({"margin": -0.1}, "margin"),
        ({"gain": 15}, "gain"),
        ({"most_unsafe": math.nan}, "most_unsafe"),
        ({"most_cost": 0}, "most_cost"),
        ({"alpha": 0.5}, "alpha"),
    ],
)
def test_a_rule_out_of_range_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GateRule(**wrong)


# -- of an agent -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_agent_without_a_rule_of_its_own_is_asked_for_its_safety_where_it_writes(
    operator: Actor, agent: Agent
) -> None:
    release = release_make(operator, agent)
    assert rule_of(agent) == GateRule(safety=True, most_unsafe=MOST_UNSAFE)
    assert verdict_of(release, None).sentence == "It may not go out: its safety was not probed."
    agent.runtime = "action"
    assert rule_of(agent) == GateRule(safety=False, most_unsafe=MOST_UNSAFE)


@pytest.mark.django_db
def test_an_agents_own_rule_is_kept_and_knows_who_approved(operator: Actor, adam: Any, agent: Agent) -> None:
    rule = GateRule({"coding": 0.8}, safety=False, approval=True, most_cost=0.01)
    AgentServing.objects.create(organization=agent.organization, agent=agent, gate=rule_stored(rule))
    assert rule_of(agent) == rule
    release = release_make(operator, agent)

    def approval() -> str:
        [found] = [one for one in verdict_of(release, None).findings if one.check == "approval"]
        return found.sentence if not found.passed else ""

    assert approval() == "no person has approved it"
    ReleaseApproval.objects.create(release=release, by=operator.user)
    assert "olivia made it" in approval()
    ReleaseApproval.objects.create(release=release, by=adam)
    assert approval() == ""
