"""The gate: bounds that hold at any analysis and for any number of candidates, and one sentence that says why not."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentcore_site.lib.figures import signed
from agentcore_site.lib.statistics import NORMAL
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.deployments.gate import MOST_UNSAFE, rule_of, rule_stored, verdict_of
from evaluation.serving.gate.statistics import InterimAnalyses, statistics
from evaluation.serving.gate.verdict import GateFinding, GateInputs, GateRule, SafetyScore, SuiteScores, decide
from evaluation.serving.models import AgentServing, ReleaseApproval
from evaluation.serving.releases.services import release_make
from experiences.models import Agent
from tests.support.gate_rounds import Round, promoted_after
from tests.support.rounds import rounds

RNG = np.random.default_rng(51)
BASE = RNG.random((120, 8))


def test_the_last_analysis_requires_half_of_alpha_and_earlier_ones_more() -> None:
    analyses = InterimAnalyses(120)
    assert analyses.critical(120) == pytest.approx(NORMAL.inv_cdf(0.975))
    assert analyses.critical(30) == pytest.approx(2 * analyses.critical(120))
    assert InterimAnalyses(120, candidates=10).critical(120) == pytest.approx(NORMAL.inv_cdf(0.9975))
    with pytest.raises(ValueError, match="120 queries were planned; got 121"):
        analyses.critical(121)
    for wrong in ({"planned": 0}, {"candidates": 0}, {"alpha": 1.0}):
        with pytest.raises(ValueError, match="needs queries, candidates"):
            InterimAnalyses(**{"planned": 9, **wrong})  # type: ignore[arg-type]


def test_a_bound_says_what_the_test_says() -> None:
    rng = np.random.default_rng(52)
    analyses = InterimAnalyses(40, candidates=3)
    for _ in range(40):
        current, gain = rng.random(40), rng.normal(0.1, 0.3, 40)
        bounds = analyses.bounds(current + gain, current)
        for least, shown in ((bounds.low - 1e-6, True), (bounds.low + 1e-6, False)):
            assert (statistics(gain[None] - least)[0] >= analyses.critical(40)) is np.bool_(shown)
        assert bounds.low < bounds.difference < bounds.high
        assert (bounds.p_value < 0.05) is (bounds.low > 0)


def test_unanswered_queries_are_no_evidence() -> None:
    current, candidate = np.full(20, 0.5), np.full(20, np.nan)
    candidate[:4] = 1.0
    bounds = InterimAnalyses(20).bounds(candidate, current)
    assert (bounds.n, bounds.difference, bounds.low, bounds.p_value) == (4, 0.5, -math.inf, 1.0)
    with pytest.raises(ValueError, match="same queries"):
        InterimAnalyses(20).bounds(candidate, current[:5])


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


def test_release_may_go_out_where_every_check_passed() -> None:
    verdict = decide(RULE, GOOD)
    assert verdict.passed and verdict.sentence == "The release may be deployed: it passed 7 checks."
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
        ({"safety": {"bias": SafetyScore(9, 40, 8)}}, "it failed 9 of 40 safety probes of bias, of which 8 could not"),
        ({"cost": 0.02}, r"its cost is \$0.02 a query, above \$0.01"),
        ({"latency": None}, "its latency was not measured"),
        ({"approved_by": ""}, "no person has approved it"),
        ({"approved_by": "olivia"}, "olivia made it, and another person has to approve it"),
    ],
)
def test_one_sentence_says_why_a_release_may_not_be_deployed(change: dict[str, Any], why: str) -> None:
    verdict = decide(RULE, replace(GOOD, **change))
    assert not verdict.passed
    assert re.search(why, verdict.sentence)


def test_further_reasons_are_counted() -> None:
    verdict = decide(RULE, replace(GOOD, safety=None, approved_by=""))
    assert verdict.sentence == "The release may not be deployed: its safety was not probed; 1 more of 7 checks failed."


def test_an_equal_candidate_passes_where_no_gain_is_required() -> None:
    rule = GateRule({"support": 0.2}, most_unsafe=0.1)
    safe = {"bias": SafetyScore(1, 40)}
    verdict = decide(rule, GateInputs(**scores(0.0), safety=safe, current="release 2"))
    assert verdict.passed, verdict.sentence


def test_nothing_is_asked_by_an_empty_rule() -> None:
    verdict = decide(GateRule({}, safety=False), GateInputs())
    assert verdict.passed and verdict.sentence == "The release may be deployed: the agent's gate has no checks."


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


@pytest.mark.parametrize(
    "allowed",
    [{"suites": {"a": 0, "b": 1}}, {"margin": 0}, {"margin": 1}, {"gain": 0}, {"gain": 1}, {"most_unsafe": 0},
     {"most_unsafe": 1}, {"most_cost": 1e-9}, {"most_latency": 3600.0}, {"alpha": 0.499}, {"alpha": 1e-6}],
)  # fmt: skip
def test_a_rule_may_lie_at_the_ends_of_its_ranges(allowed: dict[str, Any]) -> None:
    rule = GateRule(**allowed)
    assert {name: getattr(rule, name) for name in allowed} == allowed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"suites": {"support": -0.01}}, "The score of support lies between 0 and 1; got -0.01."),
        ({"margin": 1.01}, "margin lies between 0 and 1; got 1.01."),
        ({"gain": -0.5}, "gain lies between 0 and 1; got -0.5."),
        ({"most_unsafe": 2}, "most_unsafe lies between 0 and 1; got 2."),
        ({"most_cost": -1}, "most_cost is more than 0; got -1."),
        ({"most_latency": math.inf}, "most_latency is more than 0; got inf."),
        ({"most_latency": 0}, "most_latency is more than 0; got 0."),
        ({"alpha": 0}, "alpha lies between 0 and 0.5; got 0."),
    ],
)
def test_a_refused_rule_names_the_value_and_its_range(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        GateRule(**wrong)
    assert str(refused.value) == message


def test_a_rule_that_says_nothing_asks_for_safety_alone() -> None:
    rule = GateRule()
    assert (rule.suites, rule.safety, rule.most_unsafe, rule.margin, rule.alpha) == ({}, True, 0.0, 0.05, 0.05)
    assert (rule.gain, rule.most_cost, rule.most_latency, rule.approval) == (None, None, None, False)
    assert [one.check for one in decide(rule, GateInputs()).findings] == ["safety"]
    assert GateInputs().candidates == 1 and InterimAnalyses(9).candidates == 1 and InterimAnalyses(9).alpha == 0.05


def finding(check: str, *, rule: GateRule = RULE, **change: Any) -> GateFinding:
    [found] = [one for one in decide(rule, replace(GOOD, **change)).findings if one.check == check]
    return found


CONSTANT = {"support": SuiteScores([0.7, 0.7, 0.7], [0.5, 0.5, 0.5])}  # too few queries for a bound


@pytest.mark.parametrize(
    ("check", "change", "sentence", "figures"),
    [
        ("suite support", {"suites": {}}, "suite support was not run with it", {}),
        (
            "suite support",
            {"suites": {"support": SuiteScores([0.4, 0.4])}},
            "suite support is at 40.0%, of 40.0% needed",
            {"score": 0.4, "least": 0.4, "queries": 2, "planned": 2},
        ),
        (
            "suite support",
            {"suites": {"support": SuiteScores([0.3, 0.4])}},
            "suite support is at 35.0%, and 40.0% are needed",
            {"score": pytest.approx(0.35), "least": 0.4, "queries": 2, "planned": 2},
        ),
        (
            "suite support",
            {"suites": {"support": SuiteScores([math.nan])}},
            "suite support has 0 of 1 answers",
            {"score": None, "least": 0.4, "queries": 0, "planned": 1},
        ),
        (
            "no worse on support",
            {"suites": {"support": SuiteScores([0.7])}},
            "release 2 has no answers in suite support to compare it with",
            {},
        ),
        (
            "no worse on support",
            {"suites": CONSTANT, "candidates": 2},
            "on support it is not shown to be no worse than release 2 by 5 points "
            "(+20.0 points, too few queries, over 3 queries)",
            {"difference": pytest.approx(0.2), "low": None, "high": None, "p_value": 1.0, "n": 3, "candidates": 2},
        ),
        ("safety", {"safety": {}}, "its safety was not probed", {}),
        (
            "safety",
            {"safety": {"bias": SafetyScore(0, 1200), "none": SafetyScore(0, 0), "refusal": SafetyScore(0, 5)}},
            "it passed 1,205 safety probes",
            {"bias": {"failed": 0, "probes": 1200}, "refusal": {"failed": 0, "probes": 5}},
        ),
        (
            "safety",
            {"safety": {"bias": SafetyScore(2, 40), "refusal": SafetyScore(1, 2)}},
            "it failed 1 of 2 safety probes of refusal",
            {"bias": {"failed": 2, "probes": 40}, "refusal": {"failed": 1, "probes": 2}},
        ),
        ("better", {"current": ""}, "there is no release to be better than", {}),
        ("better", {"suites": {"support": SuiteScores(BASE)}}, "nothing compares it with release 2", {}),
        ("cost", {"cost": None}, "its cost was not measured", {}),
        ("cost", {"cost": math.nan}, "its cost was not measured", {}),
        ("cost", {"cost": 0.01}, "its cost is $0.01 a query, within $0.01", {"value": 0.01, "most": 0.01}),
        ("cost", {"cost": 0.02}, "its cost is $0.02 a query, above $0.01", {"value": 0.02, "most": 0.01}),
        (
            "latency",
            {"latency": 2.5},
            "its latency is 2.50 s a query, above 2.00 s",
            {"value": 2.5, "most": 2.0},
        ),
        ("approval", {"approved_by": ""}, "no person has approved it", {}),
        ("approval", {"approved_by": "olivia"}, "olivia made it, and another person has to approve it", {}),
        ("approval", {}, "adam approved it", {"by": "adam"}),
    ],
)
def test_each_finding_has_its_sentence_and_its_figures(
    check: str, change: dict[str, Any], sentence: str, figures: dict[str, Any]
) -> None:
    result = finding(check, **change)
    assert (result.sentence, result.figures) == (sentence, figures)


@pytest.mark.parametrize(
    ("check", "change", "passes"),
    [
        ("suite support", {"suites": {"support": SuiteScores([0.4, 0.4])}}, True),
        ("suite support", {"suites": {"support": SuiteScores([0.4, 0.39])}}, False),
        ("suite support", {"suites": {"support": SuiteScores([0.9, math.nan])}}, False),
        ("safety", {"safety": {"bias": SafetyScore(0, 4)}}, True),
        ("safety", {"safety": {"bias": SafetyScore(1, 4)}}, False),
        ("safety", {"safety": {}}, False),
        ("better", {"current": ""}, True),
        ("better", {"suites": {}}, False),
        ("cost", {"cost": 0.01}, True),
        ("cost", {"cost": 0.0101}, False),
        ("cost", {"cost": math.inf}, False),
        ("latency", {"latency": None}, False),
        ("approval", {"approved_by": ""}, False),
        ("approval", {"approved_by": "olivia"}, False),
        ("approval", {"made_by": ""}, True),
    ],
)
def test_what_was_measured_at_a_limit_passes_and_what_was_not_measured_does_not(
    check: str, change: dict[str, Any], passes: bool
) -> None:
    assert finding(check, **change).passed is passes


def test_a_share_of_failed_probes_may_be_reached_and_not_exceeded() -> None:
    rule = GateRule(most_unsafe=0.25)
    assert finding("safety", rule=rule, safety={"bias": SafetyScore(1, 4)}).passed
    partly = finding("safety", rule=rule, safety={"bias": SafetyScore(1, 4, 1)})
    assert partly.passed and partly.sentence == "3 of 4 safety probes were judged, and few enough failed"
    assert not finding("safety", rule=rule, safety={"bias": SafetyScore(2, 7)}).passed


def test_a_bound_has_to_lie_beyond_the_margin_and_the_gain() -> None:
    """Strictly: a bound that reaches them shows neither."""
    suites = {"support": SuiteScores(BASE + 0.02 * RNG.standard_normal(BASE.shape) - 0.05, BASE)}
    bounds = InterimAnalyses(120, 10).bounds(suites["support"].candidate, BASE)
    assert -0.1 < bounds.low < bounds.high < 0
    for margin, says in ((-bounds.low, "not shown to be no worse"), (-bounds.low + 1e-9, "no worse"),
                         (-bounds.high, "not shown to be no worse"), (-bounds.high - 1e-9, "worse")):  # fmt: skip
        result = finding("no worse on support", rule=GateRule({"support": 0.1}, margin=margin), suites=suites)
        by = "by more than" if says == "worse" else "by"
        shown = f"{signed(bounds.difference * 100)} points, {signed(bounds.low * 100)} to {signed(bounds.high * 100)}"
        points = f"{margin * 100:g} points ({shown}, over 120 queries)"
        is_worse = "worse than release 2" if says == "worse" else f"{says} than release 2"
        assert result.sentence == f"on support it is {is_worse} {by} {points}" and result.passed is (says == "no worse")
        assert result.figures == {**bounds._asdict(), "candidates": 10}
    better = {"support": SuiteScores(BASE + 0.02 * RNG.standard_normal(BASE.shape) + 0.1, BASE)}
    bounds = InterimAnalyses(120, 10).bounds(better["support"].candidate, BASE)
    for gain, passes in ((bounds.low, False), (bounds.low - 1e-9, True)):
        result = finding("better", rule=GateRule({"support": 0.1}, gain=gain), suites=better)
        shown = "it is better than" if passes else "it is not shown to be better than"
        assert result.passed is passes and result.sentence.startswith(f"{shown} release 2 by {gain * 100:g} points (+")
        assert result.figures == {**bounds._asdict(), "candidates": 10}
    assert finding("better", suites=better).sentence.startswith("it is better than release 2 (+")


def test_a_gain_is_shown_over_the_queries_of_all_suites_that_were_compared() -> None:
    rule = GateRule({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}, gain=0.0)
    half = SuiteScores(BASE[:60] + 0.1, BASE[:60])
    suites = {"a": half, "b": half, "c": SuiteScores(BASE)}  # one has no current release, one was not run
    result = finding("better", rule=rule, suites=suites)
    assert (result.figures["n"], result.figures["difference"]) == (120, pytest.approx(0.1))


def test_interim_analyses_begin_at_one_query_and_one_candidate() -> None:
    assert InterimAnalyses(1).critical(1) == pytest.approx(NORMAL.inv_cdf(0.975))
    for n in (0, -1, 10):
        with pytest.raises(ValueError, match=f"9 queries were planned; got {n}"):
            InterimAnalyses(9).critical(n)
    for wrong in ({"planned": -1}, {"candidates": -1}, {"alpha": 0.0}, {"alpha": -0.5}):
        with pytest.raises(ValueError, match="needs queries, candidates"):
            InterimAnalyses(**{"planned": 9, **wrong})  # type: ignore[arg-type]


def test_bounds_lie_where_the_statistic_is_the_critical_value_and_mirror_each_other() -> None:
    rng = np.random.default_rng(53)
    analyses = InterimAnalyses(60, alpha=0.1)
    gain = rng.normal(0.2, 0.1, 45)
    bounds = analyses.bounds(gain, np.zeros(45))
    assert statistics(gain[None] - bounds.low)[0] == pytest.approx(analyses.critical(45), abs=1e-6)
    assert statistics(bounds.high - gain[None])[0] == pytest.approx(analyses.critical(45), abs=1e-6)
    mirrored = analyses.bounds(np.zeros(45), gain)
    assert (mirrored.low, mirrored.high) == (-bounds.high, -bounds.low)
    assert bounds.p_value < 0.001 and mirrored.p_value == 1.0
    # The smallest alpha at which the lower bound lies above 0 is the p-value.
    weak = rng.normal(0.04, 0.1, 45)
    p = analyses.bounds(weak, np.zeros(45)).p_value
    assert 1e-4 < p < 1
    for alpha, above in ((p * 1.001, True), (p * 0.999, False)):
        assert (InterimAnalyses(60, alpha=alpha).bounds(weak, np.zeros(45)).low > 0) is above


def test_a_bound_of_differences_of_scores_is_no_less_than_minus_one() -> None:
    wide = np.array([-1.0, 1.0] * 3)
    bounds = InterimAnalyses(6, alpha=0.05).bounds(wide, np.zeros(6))
    assert (bounds.low, bounds.high) == (-1.0, 1.0)


# -- of an agent -------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_agent_without_a_rule_of_its_own_needs_a_safety_probe_where_the_agent_writes_text(
    operator: Actor, agent: Agent
) -> None:
    release = release_make(operator, agent)
    assert rule_of(agent) == GateRule(safety=True, most_unsafe=MOST_UNSAFE)
    assert verdict_of(release, None).sentence == "The release may not be deployed: its safety was not probed."
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
