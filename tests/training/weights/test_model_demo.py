"""The demo of a language model at a running site, with a model that is too small to pass the gate."""

from __future__ import annotations

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
NAME = "SmolLM2-135M-Instruct"  # with the SHA-256 of a release longer than the names of most services


def test_a_model_is_measured_trained_and_held_back_by_the_gate_where_it_gained_nothing(
    live_site: LiveSite, model_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(model_demo, "CONFIG", model_demo.CONFIG | {"n_iterations": 2, "eval_samples": 1})
    monkeypatch.setattr(model_demo.env, "data_dir", lambda: tmp_path)
    said: list[str] = []
    with ModelServerProcess(model_folder, "--name", NAME) as server:
        agent = demo.seed_sums(server.base_url, NAME, server.token)
        found: dict[str, Any] = model_demo.model_learns(agent, live_site.url, said.append, seed=1)
    assert found["status"] == "completed" and found["iterations"] == 2 and found["gateway_asked"] == 20
    assert found["success_rate"] is not None and found["trajectories"] >= 2 * 64
    assert not found["released"] and Release.objects.filter(agent=agent).count() == 2
    assert AgentServing.objects.get(agent=agent).release.number == 1  # type: ignore[union-attr]
    assert any("at the gate" in line for line in said)
    picture = Path(found["picture"]).read_text(encoding="utf-8")
    assert "held-out" in picture.replace("&#160;", " ") and "https://cdnjs" not in picture


@pytest.mark.django_db
def test_the_next_demo_has_an_agent_that_learned_nothing_yet() -> None:
    first, second = (demo.seed_sums("http://127.0.0.1:8300/v1", "SmolLM2", "key") for _ in range(2))
    assert (first.slug, second.slug, second.name) == ("sums", "sums-2", "Sums 2")
    assert first.endpoint == second.endpoint
