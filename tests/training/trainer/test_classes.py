"""Agents that sort: the right answers are classes, and each useful lesson names one."""

from __future__ import annotations

import pytest

from experiences.learning.lessons.guards import Shared
from tests.support import context_runs
from tests.support.context_runs import gain_of, learned
from tests.support.llm_server import ModelServer
from tests.support.shop_model import RULES, ShopModel
from training.data.sample import sample_rows

CONFIG = {
    "n_iterations": 20,
    "batch_size": 10,
    "n_trajectories_per_query": 4,
    "eval_interval": 20,
    "early_stopping": {"enabled": False},
    "context": {"gate_steps": 2},
}


@pytest.mark.thorough(reason="whole runs of learning")
def test_the_rules_of_the_sample_data_are_learned_and_were_not_where_a_class_counted_as_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ModelServer(brain=ShopModel()) as server:
        found = learned(server.base_url, sample_rows(), CONFIG, seed=5)
        assert len(set(found.shipped) & set(RULES.values())) >= 2
        gain = gain_of(found)
        assert gain.low > 0, gain
        monkeypatch.setattr(context_runs, "shared_texts", lambda _: Shared())
        before = learned(server.base_url, sample_rows(), CONFIG, seed=5)
        assert before.shipped == []
