"""A run of an agent of which nothing can be moved: everything but learning happens."""

from __future__ import annotations

import numpy as np

from experiences.rollouts.environments import environments
from experiences.rollouts.types import RolloutKey
from training.learners.context import ContextLearner
from training.policies.context import ContextPolicy
from training.schema import GRPOConfig
from training.trainer import TrainerSetup, steps
from training.trainer.setup import by_choice


class Uniform:
    """Chooses at random: the policy replaces a model that answers without our parameters."""

    version = "u"

    def choose(self, observation, rng, *, temperature):  # type: ignore[no-untyped-def]
        allowed = np.flatnonzero(observation.mask)
        return int(rng.choice(allowed)), float(-np.log(len(allowed)))


def setup(**changes: object) -> TrainerSetup:
    environment = environments.get("reasoning_gym")({})

    def acting(policy, *, temperature, max_steps, purpose):  # type: ignore[no-untyped-def]
        assert policy.context_for(RolloutKey(1, 0, 0), "").text == ""
        return by_choice(Uniform(), temperature=temperature, max_steps=max_steps)

    config = GRPOConfig.model_validate(
        {"n_iterations": 3, "batch_size": 2, "n_trajectories_per_query": 4, "eval_interval": 2, "eval_samples": 1}
        | changes
    )
    return TrainerSetup(
        config=config,
        seed=5,
        environment=environment,
        train=environment.scenarios("train", 12, 5),
        selection=environment.scenarios("selection", 4, 5),
        policy_version_prefix="f",
        learner=ContextLearner(),
        acting=acting,
        model="some-model",
    )


def test_run_collects_scores_and_its_policy_stays_unchanged() -> None:
    made = setup()
    state = made.fresh_state()
    reports = list(steps(made, state))
    assert [report.iteration for report in reports] == [1, 2, 3]
    trajectories = [t for report in reports for group in report.groups for t in group.trajectories]
    assert len(trajectories) == 24
    assert {t.model for t in trajectories} == {"some-model"}
    assert {t.policy_version for t in trajectories} == {"f0", "f1", "f2"}
    for report in reports:
        assert report.warnings == []
        for group in report.groups:
            assert abs(sum(group.advantages)) < 1e-9
            assert [len(one) for one in group.step_advantages] == [len(t.steps) for t in group.trajectories]
    assert reports[1].selection is not None and reports[0].selection is None


def test_its_state_comes_back_from_bytes() -> None:
    made = setup()
    state = made.fresh_state()
    run = steps(made, state)
    next(run)
    again = made.state_of(state.to_bytes())
    assert isinstance(again.policy, ContextPolicy)
    assert (again.iteration, again.policy.version, again.drawn) == (1, "f1", state.drawn)
