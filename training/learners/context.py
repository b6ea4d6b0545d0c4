"""The learner of a frozen model's context: reflection proposes lessons, and rewards weigh them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from experiences.learning.lessons.operations import apply_operations
from experiences.learning.lessons.reflection import Reflected
from experiences.rollouts.types import TrajectoryGroup
from training.learners import gate, gepa
from training.learners.context_update import (
    MIXED_AFTER,
    nothing_to_learn,
    rules_of,
    too_even,
    update_context,
    worth_reflecting,
)
from training.learners.settings import ACTIONS_ONLY, BY_PAIRS, GRADIENT, MEASURED, SEARCH
from training.policies.base import Policy
from training.policies.context import ContextPolicy
from training.policies.query_rule import Choice
from training.policies.query_words import QueryWords
from training.schema import GRPOConfig
from training.trainer.play import Played
from training.trainer.reports import GateReport, SelectionReport
from training.trainer.results import UpdateResult
from training.trainer.selection import ALL_ITERATIONS, EQUAL_REWARDS, selection_report, stop_on_plateau
from training.trainer.setup import Learner, TrainerSetup, ValidationPlayer
from training.trainer.state import TrainerState


class ContextLearner(Learner):
    name: ClassVar = "context"
    title: ClassVar = "lessons in a model's context"
    runtimes: ClassVar = frozenset({"llm", "http"})
    stored_as: ClassVar = ("context", "frozen")  # "frozen": from releases without lessons
    learns_context: ClassVar = True
    # Every rollout is paid for, so groups are small and looks are few. Many small iterations find more lessons than few
    # large ones, and whole groups are read with two questions instead of six.
    defaults: ClassVar[Mapping[str, Any]] = {
        "n_iterations": 60,
        "batch_size": 10,
        "n_trajectories_per_query": 4,
        "eval_interval": 20,
        "context": {"group_tokens": 6000},
        "learning_rate": 0.1,
        "optimizer": "adam",
        "temperature": 0.7,
        "eval_temperature": 0.3,
        "max_steps": 10,
        "credit": "uniform",
        "shaping": {"tool": 0.0, "verify": 0.0},
    }

    # -- describe --------------------------------------------------------------------------------------------------

    def reads(self, setting: str, algorithm: str = "grpo") -> bool:
        unread = {"tfgrpo": GRADIENT | MEASURED, "gepa": GRADIENT | MEASURED | SEARCH | BY_PAIRS}.get(algorithm, SEARCH)
        return setting.partition(".")[0] not in ACTIONS_ONLY and setting not in unread

    def unread(self, setting: str, config: GRPOConfig) -> str:
        if setting == "gamma" and config.reward == "shaped" and config.shaping.rule == "potential":
            return ""
        if not any(self.reads(setting, algorithm) for algorithm in ("grpo", "tfgrpo")):
            return (
                f"{setting} changes nothing here: it is for agents that choose actions, and this one learns lessons."
                " Leave it out."
            )
        if not self.reads(setting, config.algorithm):
            if config.algorithm == "gepa":
                return (
                    f"{setting} changes nothing with algorithm gepa, which measures whole contexts by a search of its"
                    " own. Leave it out, or take algorithm grpo."
                )
            if setting in SEARCH:
                return f"{setting} changes nothing with algorithm grpo, which keeps nothing step by step. Leave it out."
            return (
                f"{setting} changes nothing with algorithm tfgrpo, which takes all lessons and measures none of them."
                " Leave it out, or take algorithm grpo."
            )
        if config.context.update_rule == "ridge_thompson" and setting in GRADIENT:
            return (
                f"{setting} changes nothing with context.update_rule ridge_thompson, which weighs lessons by evidence"
                " and not by a gradient. Leave it out, or take grpo_adam."
            )
        return ""

    def faults(self, config: GRPOConfig) -> Mapping[str, str]:
        if config.algorithm == "dpo":
            return {"algorithm": "algorithm dpo learns weights, and this learns lessons. Take learner weights for it."}
        if config.baseline == "value":
            return {
                "baseline": "baseline value is a learned function of what an action policy sees, and this agent learns"
                " lessons. Take group_mean or loo."
            }
        if config.n_trajectories_per_query < 2 and not gepa.is_gepa(config):
            return {
                "n_trajectories_per_query": "n_trajectories_per_query must be at least 2: lessons are learned by"
                f" comparing rollouts of the same query; got {config.n_trajectories_per_query}."
            }
        return {}

    def validation_samples(self, config: GRPOConfig) -> int:
        return config.context.validation_samples

    # -- state -----------------------------------------------------------------------------------------------------

    def untrained(self, setup: TrainerSetup) -> ContextPolicy:
        """A policy that includes the lessons that are active at the start of the run."""
        return ContextPolicy.fresh(
            setup.library,
            setup.weights,
            selects=setup.config.algorithm == "grpo",
            words=setup.query_words,
            distinguishes=_distinguishes(setup),
            rule=setup.rule,
            effects=None if setup.known is None else setup.known.within(setup.library),
            evidence=None if setup.known is None else setup.known.evidence_within(setup.library, setup.query_words),
        )

    def from_state_dict(self, stored: Mapping[str, Any]) -> ContextPolicy:
        return ContextPolicy.from_state_dict(stored)

    def restored(self, setup: TrainerSetup, stored: Mapping[str, Any], *, ended: bool) -> ContextPolicy:
        policy = self.from_state_dict(stored)
        if not policy.words.size:  # earlier releases knew none
            policy.words, policy.distinguishes = setup.query_words, _distinguishes(setup)
        if "kept" not in stored and not ended:
            policy.unship(setup.library)  # in earlier releases an epoch shipped what it kept
        return policy

    # -- act and learn ---------------------------------------------------------------------------------------------

    def queries(self, setup: TrainerSetup, state: TrainerState) -> Sequence[int] | None:
        return gepa.queries(setup, _own(state)) if gepa.is_gepa(setup.config) else None

    def act(self, setup: TrainerSetup, state: TrainerState) -> Any:
        if gepa.is_gepa(setup.config):
            return gepa.context(setup, _own(state))
        return _own(state).exploring(setup.seed, setup.config.n_trajectories_per_query)

    async def reflect(
        self, setup: TrainerSetup, state: TrainerState, groups: Sequence[TrajectoryGroup], iteration: int
    ) -> Reflected | None:
        policy, reflecting = _own(state), setup.reflecting
        if gepa.is_gepa(setup.config):
            return await gepa.reflect(setup, policy, groups, iteration)
        if reflecting is None:
            return None
        kinds = await reflecting.kinds(_queries(setup)) if _sorts(setup, policy, iteration) else None
        if worth_reflecting(policy, setup.config, iteration):
            epoch = setup.epoch(iteration)
            found = await reflecting.reflect(groups, policy.library, iteration=iteration, epoch=epoch)
            return replace(found, kinds=kinds)
        return None if kinds is None else Reflected(groups=len(groups), kinds=kinds)

    def update(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        groups: Sequence[TrajectoryGroup],
        reflected: Reflected | None,
        iteration: int,
    ) -> UpdateResult:
        policy, config = _own(state), setup.config
        if reflected is not None and reflected.kinds:
            policy.sort(QueryWords.fitted(_queries(setup), reflected.kinds))
        result = update_context(groups, policy, state.optimizer, config, setup.seed)
        if gepa.is_gepa(config):
            rules = rules_of(policy, config, functions=setup.functions, memory=setup.memory)
            gepa.learn(setup, policy, groups, reflected, rules, iteration)
            result.metrics["lessons"] = float(policy.live.sum())
            if gepa.is_spent(setup, policy):
                state.stop_reason = ALL_ITERATIONS
            return result
        if reflected is not None:
            if reflected.kinds is not None:
                result.metrics["kinds"] = float(len(set(filter(None, reflected.kinds))))
            rules = rules_of(policy, config, functions=setup.functions, memory=setup.memory)
            origin = f"{setup.policy_version_prefix}/{iteration}"
            applied = apply_operations(policy.library, reflected.proposed, rules, origin=origin)
            policy.take(applied.library)
            reflected.receipts = applied.receipts
        result.metrics["equal_groups"] = float(policy.equal)
        if nothing_to_learn(policy.equal, config):
            state.stop_reason = EQUAL_REWARDS
        return result

    def warnings(self, setup: TrainerSetup, state: TrainerState, result: UpdateResult) -> list[str]:
        """Warns once, when it is known, that groups of this model have too little spread to compare."""
        policy = _own(state)
        if result.metrics.get("kinds") == 0.0:
            return [
                "The model that reflects could not sort the queries by kind. Lessons are measured by the words of "
                "queries alone. Another reflector may sort them, or leave context.kinds off."
            ]
        if gepa.is_gepa(setup.config):
            return []
        if policy.compared - setup.config.batch_size >= MIXED_AFTER or not too_even(policy, setup.config):
            return []
        share = policy.mixed / max(policy.compared, 1)
        return [
            f"Only {share:.0%} of the groups had both good and bad attempts: there is little to learn from. Take "
            "queries of which the model solves some and fails some, or another model."
        ]

    # -- candidate and gate ----------------------------------------------------------------------------------------

    def begin(self, setup: TrainerSetup, state: TrainerState, validate: ValidationPlayer) -> None:
        """Measures the initial context on the search's queries, once. If an earlier release kept a context by other
        queries, that context is measured too."""
        policy = _own(state)
        if not gate.searches(setup.config) or not setup.selection or state.search_start is not None:
            return
        state.search_start = state.current_success = validate(self._start(setup), 0, searching=True).success
        if policy.kept != policy.start:
            kept = policy.as_candidate(policy.keeps)
            state.current_success = validate(kept, state.iteration, searching=True).success

    def validates_after(self, setup: TrainerSetup, iteration: int) -> bool:
        return gate.ends_step(setup, iteration)

    def validate(
        self, setup: TrainerSetup, state: TrainerState, validate: ValidationPlayer, *, evaluates: bool
    ) -> tuple[SelectionReport | None, GateReport | None]:
        """Takes a step of the search if there is one, validates what the policy would ship, and gates it at the end."""
        policy = _own(state)
        assert state.baseline_success is not None
        candidate = self.candidate(setup, policy)
        step = None
        if gate.searches(setup.config):
            played = validate(policy.as_candidate(candidate), state.iteration, searching=True)
            step = gate.keep(setup, state, policy, candidate, played)
            candidate = policy.keeps
        if not evaluates:
            return None, step
        new = self._is_new(setup, policy, candidate)
        played = (
            validate(policy.as_candidate(candidate), state.iteration)
            if new
            else self._validation_of_start(setup, state, validate)
        )
        stop_on_plateau(setup.config, state, played)
        if not state.stop_reason:
            return selection_report(state.iteration, played, state.baseline_success), step
        selection, decided = self._gated(setup, state, validate, candidate, played, new)
        if step is None:
            return selection, decided
        rolled_back = [*step.rolled_back, *decided.rolled_back]
        return selection, replace(decided, kept=step.kept, rolled_back=rolled_back)

    def candidate(self, setup: TrainerSetup, policy: ContextPolicy) -> Choice:
        """The choice that the gate would test now."""
        context = setup.config.context
        return policy.candidate(
            context.ship_confidence,
            setup.slots,
            queries=_queries(setup),
            most_tokens=context.max_tokens,
        )

    def _gated(
        self,
        setup: TrainerSetup,
        state: TrainerState,
        validate: ValidationPlayer,
        candidate: Choice,
        played: Played,
        new: bool,
    ) -> tuple[SelectionReport, GateReport]:
        """Compares the candidate, of which ``played`` are the first samples, with the initial context. If it is not
        ``new``, no comparison is made."""
        policy, compared = _own(state), gate.unchanged(played)
        if new:
            compared = gate.compare(
                setup.config,
                state,
                played,
                more=partial(validate, policy.as_candidate(candidate), state.iteration),
                more_of_start=partial(validate, self._start(setup), 0),
            )
        selection = selection_report(state.iteration, compared.played, compared.before)
        return selection, gate.decide(setup, state, policy, candidate, compared)

    def _is_new(self, setup: TrainerSetup, policy: ContextPolicy, candidate: Choice) -> bool:
        """Whether the candidate gives any query another context than the initial one."""
        queries = [scenario.query for scenario in (*setup.selection, *setup.train)]
        return not policy.serves_alike(candidate, self._start(setup), queries)

    def _validation_of_start(self, setup: TrainerSetup, state: TrainerState, validate: ValidationPlayer) -> Played:
        """Validation of the initial context: paid for once and reused. A checkpoint from before its steps and rewards
        were stored plays it again, once: the names of its calls can't be used twice."""
        assert state.baseline_success is not None
        if state.baseline_steps is None or state.baseline_reward is None:
            played = validate(self._start(setup), 0)
            state.baseline_steps, state.baseline_reward = played.steps, played.reward
        samples = state.baseline_steps.shape[1]
        return Played(state.baseline_success[:, :samples], state.baseline_steps, state.baseline_reward, [])

    def _start(self, setup: TrainerSetup) -> ContextPolicy:
        """The policy at the start of the run."""
        policy = self.untrained(setup)
        policy.updated(setup.version(0))
        return policy


def _distinguishes(setup: TrainerSetup) -> bool:
    return setup.config.context.relevance == "queries"


def _sorts(setup: TrainerSetup, policy: ContextPolicy, iteration: int) -> bool:
    """True in the first iteration of a run that sorts its training queries by kind."""
    return setup.config.context.kinds and iteration == 1 and policy.selects and bool(policy.words.size)


def _queries(setup: TrainerSetup) -> list[str]:
    return [scenario.query for scenario in setup.train]


def _own(state: TrainerState) -> ContextPolicy:
    policy: Policy = state.policy
    assert isinstance(policy, ContextPolicy)
    return policy
