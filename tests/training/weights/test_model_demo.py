"""The demo of a language model at a running site, with a model that is too small to pass the gate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from evaluation.serving.loop import model_demo
from evaluation.serving.models import AgentServing, Release
from tests.support.model_server_process import ModelServerProcess
from tests.support.workers import LiveSite
from training import demo

pytestmark = [
    pytest.mark.thorough(reason="a site and a model server run, and a model is trained"),
    pytest.mark.slow(reason="a site and a model server run, and a model is trained"),
]


def test_a_model_is_measured_trained_and_held_back_by_the_gate_where_it_gained_nothing(
    live_site: LiveSite, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_demo, "CONFIG", model_demo.CONFIG | {"n_iterations": 2, "eval_samples": 1})
    said: list[str] = []
    with ModelServerProcess(Path(os.environ.get("SMOL", model_folder))) as server:
        agent = demo.seed_sums(server.base_url, Path(server.command[3]).name, server.token)
        found: dict[str, Any] = model_demo.model_learns(agent, live_site.url, said.append, seed=1)
    print(found, said)
    assert found["status"] == "completed" and found["iterations"] == 2 and found["gateway_asked"] == 20
    assert found["success_rate"] is not None and found["trajectories"] >= 2 * 64
    assert not found["released"] and Release.objects.filter(agent=agent).count() == 2
    assert AgentServing.objects.get(agent=agent).release.number == 1  # type: ignore[union-attr]
    assert any("at the gate" in line for line in said)
