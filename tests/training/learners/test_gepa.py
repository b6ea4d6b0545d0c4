"""Algorithm gepa: whole runs with the trainer, the runtime and the client, beside a simulated model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from experiences.learning.lessons.library import Lesson, Library, line_tokens
from experiences.learning.lessons.operations import OperationRules
from experiences.learning.lessons.reflection import Reflected, Rewritten
from experiences.rollouts.structured_output import ModelAnswer
from experiences.rollouts.types import RolloutKey, Scenario, Trajectory, TrajectoryGroup
from tests.support.context_runs import Finished, learned, setup_of
from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import Body, SimulatedModel, simulated_server
from tests.support.simulated_prompt import schema_of
from tests.support.world import World
from training.algorithm.gepa_search import Rewriting
from training.learners import gepa, learner_of
from training.learners.context import ContextLearner
from training.policies.context import ContextPolicy, without_lessons
from training.schema import GRPOConfig
from training.trainer import ALL_ITERATIONS, steps
from training.trainer.setup import NothingStored

WORLD = World(7)
ROWS = WORLD.rows(60, 7)
CONFIG: dict[str, Any] = {
    "algorithm": "gepa",
    "n_iterations": 24,
    "batch_size": 8,
    "n_trajectories_per_query": 1,
    "eval_interval": 24,
    "context": {"reflect_groups": 3, "gate_samples": 4, "gate_steps": 1},
}


class Interrupted(Exception):
    """A crash."""


class Store(NothingStored):
    """Keeps rollouts and answers over crashes, and counts what was played or asked."""

    def __init__(self, dies_at: int = 0) -> None:
        self.rows: dict[int, dict[RolloutKey, Trajectory]] = {}
        self.looked: dict[int, dict[RolloutKey, Trajectory]] = {}
        self.answers: dict[str, ModelAnswer] = {}
        self.played: Counter[Any] = Counter()
        self.asked: Counter[str] = Counter()
        self.dies_at, self.done = dies_at, 0

    def _work(self) -> None:
        self.done += 1
        if self.done == self.dies_at:
            raise Interrupted

    def store(self, trajectory: Trajectory) -> None:
        self.played[trajectory.key] += 1
        self.rows.setdefault(trajectory.key.iteration, {})[trajectory.key] = trajectory
        self._work()

    def stored(self, iteration: int) -> Mapping[RolloutKey, Trajectory]:
        return self.rows.get(iteration, {})

    def store_validation(self, at: int, trajectory: Trajectory) -> None:
        self.played[at, trajectory.key] += 1
        self.looked.setdefault(at, {})[trajectory.key] = trajectory

    def stored_validation(self, at: int) -> Mapping[RolloutKey, Trajectory]:
        return self.looked.get(at, {})

    def keep(self, answered: ModelAnswer) -> None:
        self.asked[answered.key] += 1
        self.answers[answered.key] = answered
        self._work()

    def recall(self, key: str, asked: str) -> ModelAnswer | None:
        earlier = self.answers.get(key)
        return earlier if earlier is not None and earlier.asked == asked else None


def with_store(server: ModelServer, store: Store) -> Any:
    setup, reflecting, _, _ = setup_of(server.base_url, ROWS, CONFIG, seed=3)
    reflecting._asking().asker.recall, reflecting._asking().asker.keep = store.recall, store.keep
    return replace(setup, rollouts=store)


def texts(policy: Any) -> list[str]:
    return [lesson.text for lesson in policy.library.live]


@pytest.fixture(scope="module")
def finished() -> Finished:
    with simulated_server(WORLD, habits=Habits()) as server:
        return learned(server.base_url, ROWS, CONFIG, seed=3)


def test_a_run_ends_with_the_best_list_of_lessons_at_the_gate(finished: Finished) -> None:
    policy: Any = finished.state.policy
    last = finished.reports[-1]
    assert finished.state.stop_reason == ALL_ITERATIONS
    assert last.gate is not None and last.gate.final and last.gate.candidate == policy.kept
    assert texts(policy) and {one.handle for one in policy.library.live} == set(policy.kept)
    assert all(lesson.taught_by for lesson in policy.library)
    assert {one.stage for one in finished.answered} == {"rewrite"}
    receipts = [one for report in finished.reports if report.reflected for one in report.reflected.receipts]
    assert set(policy.kept) & {one.handle for one in receipts if one.taken}


def test_it_plays_training_queries_alone_and_each_rollout_of_an_iteration_with_one_context(finished: Finished) -> None:
    known = {scenario.query for scenario in finished.setup.train}
    for report in finished.reports:
        contexts = {str(t.steps[0].state.get("told")) for group in report.groups for t in group.trajectories if t.steps}
        assert len(contexts) == 1
        assert {group.scenario.query for group in report.groups} <= known


def test_it_plays_no_more_rollouts_than_its_settings_say(finished: Finished) -> None:
    played = sum(len(group.trajectories) for report in finished.reports for group in report.groups)
    most = gepa.rollouts_of(finished.setup.config, len(finished.setup.train))
    assert 0 < played <= most == 24 * 8 and gepa.rollouts_of(finished.setup.config, 0) == 24
    with simulated_server(WORLD, habits=Habits()) as server:
        short = learned(server.base_url, ROWS, CONFIG | {"batch_size": 2}, seed=3)
    played = sum(len(group.trajectories) for report in short.reports for group in report.groups)
    assert played <= 48 and len(short.reports) < 24 and short.state.stop_reason == ALL_ITERATIONS
    assert short.reports[-1].gate is not None


ALSO = pytest.mark.thorough(reason="the same at other moments")


@pytest.mark.slow(reason="runs that die and go on")
@pytest.mark.parametrize("dies_at", [23, 41, *(pytest.param(at, marks=ALSO) for at in (5, 31, 40, 42, 60))])
def test_a_run_that_dies_pays_for_nothing_twice_and_ends_as_one_that_was_left_alone(dies_at: int) -> None:
    ends = []
    for at in (0, dies_at):
        with simulated_server(WORLD, habits=Habits()) as server:
            store = Store(at)
            setup = with_store(server, store)
            state = setup.fresh_state()
            saved = state.to_bytes()
            try:
                for report in steps(setup, state):
                    if report.iteration % 3 == 0:
                        saved = state.to_bytes()
            except Interrupted:
                setup = with_store(server, store)
                state = setup.state_of(saved)
                list(steps(setup, state))
            assert store.done > dies_at
            assert set(store.played.values()) == {1} and set(store.asked.values()) == {1}
            ends.append((state.policy.answers, texts(state.policy), state.policy.shipped, sorted(store.asked)))
    assert ends[0] == ends[1]


def test_a_state_comes_back_from_bytes_with_its_answers(finished: Finished) -> None:
    again: Any = finished.setup.state_of(finished.state.to_bytes()).policy
    policy: Any = finished.state.policy
    assert again.answers == policy.answers and len(policy.answers) > 10
    assert gepa.standing(finished.setup, again) == gepa.standing(finished.setup, policy)


def test_erased_words_leave_the_answers_of_a_checkpoint_and_the_search_asks_the_same_queries(
    finished: Finished,
) -> None:
    policy: Any = finished.state.policy
    gone = texts(policy)[0]
    cleaned = without_lessons(policy.state_dict(), lambda text: gone in text)
    assert cleaned is not None and gone not in str(cleaned["answers"]) and gone not in str(cleaned["library"])
    again = ContextPolicy.from_state_dict(cleaned)
    assert gepa.queries(finished.setup, again) == gepa.queries(finished.setup, policy)


class Wordy(SimulatedModel):
    """Rewrites every context into what can't be lessons."""

    def reply(self, body: Body) -> str:
        if "instructions" in ((schema_of(body) or {}).get("properties") or {}):
            return '{"instructions": ["Do this. Then that.", "When asked, ' + "word " * 40 + '"]}'
        return super().reply(body)


def test_lines_that_can_t_be_lessons_are_refused_with_the_reason_and_the_run_ships_nothing() -> None:
    with simulated_server(WORLD, habits=Habits()) as server:
        server.brain = Wordy(WORLD, Habits())
        found = learned(server.base_url, ROWS, CONFIG | {"n_iterations": 6}, seed=3)
    receipts = [one for report in found.reports if report.reflected for one in report.reflected.receipts]
    assert receipts and not any(one.taken for one in receipts)
    assert {one.why for one in receipts} == {'it does not begin with "When"', "it has 42 words; 32 are allowed"}
    last = found.reports[-1].gate
    assert last is not None and not last.accepted and found.shipped == []


def answered(*lines: str, faults: Mapping[str, str] | None = None, **limits: Any) -> tuple[Any, list[tuple[str, str]]]:
    """(the recorded answer to a rewriting of "When a, b.", refused lines with their reasons)."""
    setup = replace(setup_of("http://127.0.0.1:1", ROWS, CONFIG, seed=3)[0], slots=limits.pop("slots", None))
    rewritten = Rewritten(tuple((line, (faults or {}).get(line, "")) for line in lines))
    reflected = Reflected(rewritten=rewritten)
    rules = OperationRules(functions=frozenset({"transfer_money"}), **limits)
    answer = gepa._answer(setup, "When a, b.", [], reflected, rules, 1)
    return answer, [(one.text, one.why) for one in reflected.receipts]


def test_a_line_that_looks_like_an_order_to_a_model_is_never_tried() -> None:
    answer, refused = answered("When a, b.", "When money is due, call transfer_money at once.")
    assert answer["text"] == "" and [text for text, _ in refused] == ["When money is due, call transfer_money at once."]


def test_what_says_the_same_or_has_no_room_is_left_out() -> None:
    answer, refused = answered("When a sum is long, add slowly.", "When a sum is long, add slowly!")
    assert answer["text"] == "When a sum is long, add slowly." and refused[0][1] == "another line says the same"
    many = [f"When it is case {n} of {'xyz'[n]}, turn to page {7 * n}." for n in range(3)]
    for limit in ({"max_items": 2}, {"slots": 2}, {"max_tokens": 35}):
        answer, refused = answered(*many, **limit)
        assert answer["text"] == "\n".join(many[:2]), limit
        assert refused == [(many[2], "the context has no room for it")], limit
    exact = sum(line_tokens(line) for line in many)
    assert answered(*many, max_tokens=exact)[0]["text"].splitlines() == many


def test_records_hold_the_begin_of_long_texts_and_reasons_and_so_many_names_of_rollouts() -> None:
    long = "When " + "so " * 200
    answer, refused = answered(long, faults={long: "no " * 200})
    assert answer["text"] == "" and refused == [(long[:400], ("no " * 200)[:300])]
    groups = [
        TrajectoryGroup(
            Scenario(0, "q"), [Trajectory(RolloutKey(1, 0, n), "q", []) for n in range(gepa.MOST_TAUGHT + 1)]
        )
    ]
    setup = setup_of("http://127.0.0.1:1", ROWS, CONFIG, seed=3)[0]
    answer = gepa._answer(setup, "", groups, None, OperationRules(), 1)
    assert len(set(answer["taught_by"])) == gepa.MOST_TAUGHT == 64


@pytest.mark.parametrize(("iterations", "most"), [(1, 1), (4, 2), (12, 6)])
def test_a_fourth_of_the_rollouts_pays_for_the_validation_queries(iterations: int, most: int) -> None:
    """Two rollouts an iteration; the queries are spread over all of them. A section is no text of the search."""
    began = [Lesson("s1", "A heading", kind="section"), Lesson("l1", "When a, b.")]
    config = CONFIG | {"n_iterations": iterations, "batch_size": 2}
    setup = setup_of("http://127.0.0.1:1", ROWS, config, seed=3)[0]
    search = gepa._search(replace(setup, library=Library(tuple(began))))
    n = len(setup.train)
    assert search.validation == tuple(at * n // most for at in range(most)) and search.start == "When a, b."
    assert set(search.train) == set(range(n)) - set(search.validation)


def test_without_a_usable_answer_the_search_goes_on_with_its_next_queries() -> None:
    setup = setup_of("http://127.0.0.1:1", ROWS, CONFIG, seed=3)[0]
    for reflected in (None, Reflected(rewritten=None)):
        answer = gepa._answer(setup, "When a, b.", [], reflected, OperationRules(), 24)
        assert (answer["text"], answer["epoch"]) == ("", setup.config.context.epochs)


def test_a_text_that_comes_back_keeps_its_name_and_one_that_goes_is_taken_out(finished: Finished) -> None:
    policy: Any = finished.state.policy
    live = [lesson for lesson in policy.library if lesson.live][:2]
    began = [replace(lesson, handle=f"h{at}") for at, lesson in enumerate(live)]
    setup = replace(finished.setup, library=Library(tuple(replace(one, status="active") for one in began)))
    state = setup.fresh_state()
    mine: Any = state.policy
    assert gepa.context(setup, mine).text_for("") == state.policy.serves.text_for("")  # type: ignore[attr-defined]
    standing = gepa.standing(setup, mine)
    mine.answers.append({"text": "When new, look.", "epoch": 2, "domain": "sums", "taught_by": ["a rollout"]})
    found = replace(standing, best=f"{began[1].text}\nWhen new, look.\nWhen odd, look away.")
    receipts = gepa._take(setup, mine, found)
    new, odd = mine.library.lessons[2:]
    assert (new.epoch, new.domain, new.taught_by) == (2, "sums", ("a rollout",))
    assert (odd.epoch, odd.domain, odd.taught_by) == (1, "", ())
    assert [(one.op, one.taken, one.handle, one.text) for one in receipts] == [
        ("ADD", True, new.handle, new.text), ("ADD", True, odd.handle, odd.text)
    ]  # fmt: skip
    assert mine.kept == (began[1].handle, new.handle, odd.handle)
    before = mine.library
    assert gepa._take(setup, mine, found) == [] and mine.library is before
    assert [(one.text, one.status) for one in mine.library] == [
        (began[0].text, "pruned"), (began[1].text, "active"), ("When new, look.", "proposed"),
        ("When odd, look away.", "proposed"),
    ]  # fmt: skip
    gepa._take(setup, mine, replace(standing, best=began[0].text))
    assert [one.status for one in mine.library] == ["proposed", "pruned", "pruned", "pruned"]
    assert mine.kept == (began[0].handle,)
    mine.library = mine.library.moved([began[0].handle], "pruned")  # by a person, meanwhile
    gepa._take(setup, mine, replace(standing, best=began[0].text))
    assert mine.library.lessons[0].live
    assert mine.library.lessons[0].handle == began[0].handle


@pytest.mark.parametrize(("runtime", "learner"), [("action", ""), ("llm", "weights")])
def test_it_is_for_contexts_alone(runtime: str, learner: str) -> None:
    config = GRPOConfig.model_validate({"algorithm": "gepa"})
    assert "algorithm gepa" in learner_of(runtime, learner).faults(config)["algorithm"]
    assert ContextLearner().faults(config) == {}


def test_rewards_below_a_success_count_in_part() -> None:
    def one(reward: float, *, success: bool = False) -> Trajectory:
        return Trajectory(RolloutKey(1, 0, 0), "q", [], success=success, reward=reward)

    scored: Callable[[Trajectory], float] = gepa._score
    assert [scored(one(r)) for r in (0.4, -1.0, 3.0, float("nan"))] == [0.4, 0.0, 0.99, 0.0]
    assert scored(one(-0.5, success=True)) == 1.0
    single, pair = ([one(r) for r in rewards] for rewards in ((0.4,), (0.4, 0.2)))
    groups = [TrajectoryGroup(Scenario(0, "q"), trajectories) for trajectories in (single, pair, [])]
    assert gepa.scores(groups) == pytest.approx([0.4, 0.3, 0.0])


def test_it_is_spent_where_the_next_evaluation_would_play_more_rollouts_than_the_settings_allow() -> None:
    """With groups of two: 3 validation queries, and what was scored, count twice."""
    config = CONFIG | {"n_trajectories_per_query": 2, "n_iterations": 1, "batch_size": 8}
    setup = setup_of("http://127.0.0.1:1", ROWS, config, seed=3)[0]
    policy: Any = setup.fresh_state().policy
    most, asked = gepa.rollouts_of(setup.config, len(setup.train)), len(gepa.queries(setup, policy))
    spent = []
    while not gepa.is_spent(setup, policy):
        policy.answers.append([0.5] * len(gepa.queries(setup, policy)))
        asks = gepa.standing(setup, policy).asks
        if isinstance(asks, Rewriting):
            policy.answers.append({"text": f"When it is {len(policy.answers)}, look."})
        spent.append(2 * sum(len(one) for one in policy.answers if isinstance(one, list)))
    assert asked >= 1 and spent and max(spent) <= most < spent[-1] + 2 * len(gepa.queries(setup, policy))


def test_reflection_that_is_not_there_leaves_the_text(finished: Finished) -> None:
    with simulated_server(WORLD, habits=Habits()) as server:
        setup = replace(setup_of(server.base_url, ROWS, CONFIG | {"n_iterations": 3}, seed=3)[0], reflecting=None)
        state = setup.fresh_state()
        list(steps(setup, state))
    assert isinstance(state.policy, ContextPolicy) and state.policy.kept == ()
