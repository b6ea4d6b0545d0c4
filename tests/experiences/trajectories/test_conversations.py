"""Conversations of language models as files that TRL loads: what the model saw and said, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from experiences.rollouts.message_diff import conversations_of
from experiences.trajectories.exports.conversations import Rewarded, dpo_lines, sft_lines
from experiences.trajectories.storage import step_json
from tests.experiences.rollouts.runtimes.test_llm import calculating, rolled
from tests.support.llm_server import ModelServer


def as_sent(message: dict[str, Any]) -> tuple[Any, ...]:
    """A message as a request has it, or as a conversation does."""
    called = [one["function"] for one in message.get("tool_calls") or ()]
    arguments = [(one["name"], one["arguments"]) for one in called]
    read = [(name, json.loads(one) if isinstance(one, str) else one) for name, one in arguments]
    return message["role"], message.get("content") or "", read


def prompted(system: str, user: str, answer: str) -> list[dict[str, Any]]:
    """Steps of a rollout of one call."""
    state = {"observation": user, "done": [], "prompt": [{"role": "system", "content": system}, {"role": "user"}]}
    action = {"type": "answer", "tool": "", "parameters": {"text": answer}}
    return [{"state": state, "action": action, "result": {"success": True, "output": answer, "error": ""}}]


@pytest.mark.parametrize("philosophy", ["react", "cot", "autonomous", "multi_agent"])
async def test_a_conversation_is_the_models_input_word_by_word(philosophy: str) -> None:
    with ModelServer(brain=calculating) as server:
        result = await rolled(server, philosophy=philosophy, system="You are careful.")
    talks = conversations_of(orjson.loads(orjson.dumps([step_json(step) for step in result.steps])))
    written = [[as_sent(one) for one in talk] for talk in talks]
    asked = [[as_sent(one) for one in request.body["messages"]] for request in server.requests]
    assert asked and all(talk[0][0] == "system" and "You are careful." in talk[0][1] for talk in written)
    for messages in asked:
        n = len(messages)
        assert any(talk[:n] == messages and talk[n][0] == "assistant" for talk in written), messages
    assert sum(talk.count(one) for talk in written for one in talk if one[0] == "assistant") >= len(asked)
    assert max(map(len, written)) == max(map(len, asked)) + 1  # nothing was added to the longest


async def test_an_answer_that_was_unusable_is_in_no_conversation() -> None:
    def stumbling(messages: list[dict[str, Any]]) -> Any:
        stumbling.calls += 1  # type: ignore[attr-defined]
        return "" if stumbling.calls == 1 else calculating(messages)  # type: ignore[attr-defined]

    stumbling.calls = 0  # type: ignore[attr-defined]
    with ModelServer(brain=stumbling) as server:
        result = await rolled(server)
    assert result.steps[0].action["type"] == "malformed"
    [talk] = conversations_of([step_json(step) for step in result.steps])
    assert [one["role"] for one in talk] == ["system", "user", "assistant", "tool", "assistant"]
    assert talk[3] == {"role": "tool", "content": "391", "name": "int_calc"}


def test_the_calls_of_an_agent_over_http_are_one_conversation() -> None:
    """Its tools are its own: their results come with its next call; what it answers at last is in its own words."""
    calls = [{"tool": "find", "parameters": {"n": 1}}, {"tool": "look", "parameters": {}}]
    values = {"observation": "Where?", "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user"}]}
    read = {"observation": "two", "further": [{"role": "tool", "content": "one"}, {"role": "tool"}]}
    steps: list[dict[str, Any]] = [
        {"state": values, "action": {"type": "tool", "tool": "several", "parameters": {"calls": calls}}, "result": {}},
        {"state": read, "action": {"type": "message", "parameters": {}}, "result": {"output": "Here."}},
        {"state": {"observation": "two"}, "action": {"type": "answer", "parameters": {"text": "HERE"}}, "result": {}},
    ]
    [talk] = conversations_of(steps)
    assert [as_sent(one) for one in talk] == [
        ("system", "Be brief.", []),
        ("user", "Where?", []),
        ("assistant", "", [("find", {"n": 1}), ("look", {})]),
        ("tool", "one", []),
        ("tool", "two", []),
        ("assistant", "Here.", []),
    ]
    assert [one["name"] for one in talk if one["role"] == "tool"] == ["find", "look"]


def test_steps_without_the_models_input_are_no_conversation() -> None:
    steps = prompted("Be brief.", "2 + 2?", "4")
    del steps[0]["state"]["prompt"]
    assert conversations_of(steps) == [] == list(sft_lines(steps))


def test_pairs_are_the_best_with_the_worst_and_each_rollout_is_in_one() -> None:
    rewards = [0.2, 1.0, 0.2, 0.7, 0.0]
    group = [Rewarded(one, prompted("Be brief.", "2 + 2?", f"answer {n}")) for n, one in enumerate(rewards)]
    pairs = [json.loads(line) for line in dpo_lines(group)]
    assert [(one["chosen"][0]["content"], one["rejected"][0]["content"]) for one in pairs] == [
        ("answer 1", "answer 4"),
        ("answer 3", "answer 2"),
    ]
    assert pairs[0]["prompt"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    assert set(pairs[0]) == {"prompt", "chosen", "rejected"}


def test_rollouts_with_different_prompts_are_no_pair() -> None:
    group = [Rewarded(1.0, prompted("Be brief.", "2 + 2?", "4")), Rewarded(0.0, prompted("Be long.", "2 + 2?", "5"))]
    assert list(dpo_lines(group)) == []
    assert list(dpo_lines([group[0], group[0]])) == []  # nor where rewards are the same


@pytest.mark.thorough(reason="loads torch and TRL")
async def test_trl_loads_the_files_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    with ModelServer(brain=calculating) as server:
        result = await rolled(server, system="You are careful.")
    steps = [step_json(step) for step in result.steps]
    other = orjson.loads(orjson.dumps(steps))
    other[0]["action"]["parameters"] = {"text": 17, "digits": [2]}  # another tool's arguments, of another type
    (tmp_path / "sft.jsonl").write_bytes(b"".join([*sft_lines(steps), *sft_lines(other)]))
    group = [Rewarded(float(n), prompted("Be brief.", "2 + 2?", f"answer {n}")) for n in range(4)]
    (tmp_path / "dpo.jsonl").write_bytes(b"".join(dpo_lines(group)))
    for name, words in {"sft": ("You are careful.", "391"), "dpo": ("Be brief.", "answer 3")}.items():
        said = tokenised_by_trl(tmp_path, name)
        assert all(word in said for word in words), said


def tokenised_by_trl(folder: Path, name: str) -> str:
    """The tokens that TRL's trainer makes of a file, decoded."""
    import datasets
    import trl
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.data_utils import is_conversational

    from training.weights.random_model import random_model

    model = random_model(folder / f"{name}-model")
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    rows = datasets.load_dataset(
        "json", data_files=str(folder / f"{name}.jsonl"), split="train", cache_dir=str(folder / "cache")
    )
    assert rows.num_rows == 2 and all(is_conversational(row) for row in rows)
    trainers = {"sft": (trl.SFTTrainer, trl.SFTConfig), "dpo": (trl.DPOTrainer, trl.DPOConfig)}
    trainer, config = trainers[name]
    made = trainer(
        model=AutoModelForCausalLM.from_pretrained(model, local_files_only=True),
        args=config(output_dir=str(folder / name), report_to="none", use_cpu=True, bf16=False, max_length=None),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    ids = [row[key] for row in made.train_dataset for key in row if key.endswith("ids")]
    return "\n".join(tokenizer.decode(one) for one in ids)
