"""A model server on a real socket: OpenAI's chats, the Tinker API, another trainer behind it, and served releases."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agentcore_site.jobs.models import Status
from agentcore_site.tenancy.actors import Actor
from budgets.models import LedgerEntry
from evaluation.serving.gateway.served_models import served_model
from evaluation.serving.models import AgentServing
from evaluation.serving.releases.services import release_make
from experiences.models import Agent, TrajectoryRecord
from tests.support.model_server_process import ModelServerProcess
from tests.support.running import run_to_end
from tests.training.weights.conftest import PRICE, agent_at
from tests.training.weights.test_learning import start, weights_of
from training.services import checkpoints

pytestmark = pytest.mark.slow(reason="a model server is a process that loads torch")

HELLO: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "alpha 1"}], "max_tokens": 5}


async def said(model_server: ModelServerProcess, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    known = {"authorization": f"Bearer {model_server.token}"} | headers
    async with (
        aiohttp.ClientSession(headers=known) as session,
        session.post(f"{model_server.base_url.removesuffix('/v1')}{path}", json=body) as answer,
    ):
        text = await answer.text()
        return answer.status, text if "event-stream" in answer.content_type else json.loads(text)


async def chat(model_server: ModelServerProcess, **changes: Any) -> tuple[int, Any]:
    return await said(model_server, "/v1/chat/completions", HELLO | changes)


async def trained(model_server: ModelServerProcess, call: str, **asked: Any) -> Any:
    _, promised = await said(model_server, f"/api/v1/{call}", asked)
    return (await said(model_server, "/api/v1/retrieve_future", {"request_id": promised["request_id"]}))[1]


async def test_a_chat_returns_the_sampled_tokens_and_a_seed_repeats_them(model_server: ModelServerProcess) -> None:
    options = {"logprobs": True, "return_token_ids": True, "seed": 7}
    status, answer = await chat(model_server, **options)
    choice = answer["choices"][0]
    assert status == 200 and len(choice["token_ids"]) == len(choice["logprobs"]["content"]) <= 5
    assert all(one["logprob"] < 0 for one in choice["logprobs"]["content"])
    usage = {"prompt_tokens": len(answer["prompt_token_ids"]), "completion_tokens": len(choice["token_ids"])}
    assert answer["usage"] == usage | {"total_tokens": sum(usage.values())}
    assert (
        (await chat(model_server, **options))[1]["choices"]
        == answer["choices"]
        != (await chat(model_server, seed=8))[1]["choices"]
    )
    _, events = await chat(model_server, seed=7, stream=True, stream_options={"include_usage": True})
    chunks = [json.loads(line[6:]) for line in events.split("\n\n") if line.startswith("data: {")]
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks if one["choices"])
    assert text == choice["message"]["content"] and chunks[-1]["usage"] == answer["usage"]
    assert events.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"model": "other"}, 404),
        ({"model": f"tiny@{'a' * 64}"}, 404),
        ({"model": "tiny@../../secret"}, 404),
        ({"messages": []}, 400),
        ({"messages": "hello"}, 400),
        ({"top_p": 0}, 400),
        ({"stop": [1]}, 400),
        ({"frequency_penalty": 0.5}, 400),
        ({"n": 2}, 400),
        ({"temperature": "warm"}, 400),
        ({"max_tokens": 0}, 400),
        ({"messages": [{"role": "user", "content": "a b " * 2_000}]}, 400),
    ],
)
async def test_a_request_without_an_answer_is_refused_with_a_reason(
    model_server: ModelServerProcess, changes: dict[str, Any], status: int
) -> None:
    found, answer = await chat(model_server, **changes)
    assert found == status and answer["error"]["message"]


async def test_a_request_without_the_key_is_refused(model_server: ModelServerProcess) -> None:
    assert (await said(model_server, "/v1/chat/completions", HELLO, authorization="Bearer wrong"))[0] == 401
    assert (await said(model_server, "/api/v1/create_session", {}, authorization=""))[0] == 401


async def test_model_server_trains_by_the_calls_of_the_tinker_api_and_samples_from_what_was_saved(
    model_server: ModelServerProcess,
) -> None:
    row = {"model_input": {"chunks": [{"type": "encoded_text", "tokens": [10, 11, 12]}]}, "loss_fn_inputs": {}}
    row["loss_fn_inputs"] = {
        "target_tokens": {"data": [11, 12, 40], "dtype": "int64", "shape": [3]},
        "weights": {"data": [0.0, 0.0, 1.0], "dtype": "float32", "shape": [3]},
    }
    made = await trained(
        model_server, "create_model", session_id="s", model_seq_id=0, base_model="tiny", lora_config={"rank": 0}
    )
    model = made["model_id"]
    losses = []
    for _ in range(12):
        asked = {"data": [row], "loss_fn": "cross_entropy"}
        found = await trained(model_server, "forward_backward", model_id=model, forward_backward_input=asked)
        losses.append(found["metrics"]["loss:sum"])
        moved = await trained(model_server, "optim_step", model_id=model, adam_params={"learning_rate": 0.01})
        assert moved["metrics"]["grad_norm"] > 0
    assert losses[-1] < 0.2 * losses[0] and found["loss_fn_outputs"][0]["logprobs"]["shape"] == [3]
    saved = await trained(model_server, "save_weights_for_sampler", model_id=model)
    prompt, params = row["model_input"], {"max_tokens": 1, "temperature": 0.0}
    sampled = await trained(model_server, "asample", prompt=prompt, sampling_params=params, model_path=saved["path"])
    assert sampled["sequences"][0]["tokens"] == [40]
    assert (
        await trained(model_server, "load_weights", model_id=model, path="tinker://x/weights/nothing", optimizer=True)
    )["error"]
    await trained(model_server, "unload_model", model_id=model)
    assert "error" in await trained(model_server, "optim_step", model_id=model, adam_params={})


@pytest.mark.django_db(transaction=True)
@pytest.mark.thorough(reason="a whole run, or a second program")
def test_a_job_is_trained_by_another_server_of_the_tinker_api(
    operator: Actor, adam: Any, model_server: ModelServerProcess, model_folder: Path
) -> None:
    trainer = model_server.base_url.removesuffix("/v1")
    with ModelServerProcess(model_folder, "--trainer", trainer, "--name", "tiny") as front:
        run = start(operator, agent_at(Actor(adam), front, endpoint_options={"gpu_usd_per_hour": 3.6}), n_iterations=6)
        job = run_to_end(run.job)
        assert (job.status, job.error) == (Status.COMPLETED, "")
        state = json.loads(weights_of(run).state)
    assert state["path"].startswith("tinker://") and state["sampler"]
    assert TrajectoryRecord.objects.filter(job_id=job.id, purpose="training").count() == 6 * 4 * 4
    # The trainer's seconds cost money too: 1,000 micro-dollars each, beside one for each token.
    paid = LedgerEntry.objects.filter(job_id=job.id, kind="settle", purpose="training", rollout="")
    assert sum(paid.values_list("cost_micros", flat=True)) > sum(paid.values_list("input_tokens", flat=True)) > 0
    figures = [one.metrics for one in run.iterations.all()]
    assert any(one["grad_norm"] > 0 for one in figures) and all(abs(one["approx_kl"]) < 1e-3 for one in figures)


@pytest.mark.django_db(transaction=True)
@pytest.mark.thorough(reason="a whole run, or a second program")
async def test_a_release_of_weights_is_served_also_by_a_restarted_model_server(
    operator: Actor, adam: Any, model_folder: Path
) -> None:
    from asgiref.sync import sync_to_async

    def released() -> tuple[Agent, Any, str]:
        agent = agent_at(Actor(adam), first)
        run = start(operator, agent)
        assert run_to_end(run.job).status == Status.COMPLETED
        release = release_make(operator, agent, checkpoint=checkpoints.latest(run))
        return agent, release, weights_of(run).digest

    with ModelServerProcess(model_folder) as first:
        agent, release, digest = await sync_to_async(released)()
        name = release.bundle["model"]["name"]
        assert name == f"tiny@{digest}" and release.bundle["policy"]["checkpoint"]
        before = await chat(first, model=name, seed=3)

        def served() -> Any:
            AgentServing.objects.create(organization=agent.organization, agent=agent, release=release)
            return served_model(agent.organization_id, f"agent:{agent.slug}")

        found = await sync_to_async(served)()
        [upstream] = found.current.upstreams
        assert upstream.endpoint.model == name and found.prices.price(upstream.priced).input_micros == PRICE
    with ModelServerProcess(model_folder) as second:
        assert (await chat(second, model=name, seed=3))[1]["choices"] == before[1]["choices"]


async def test_a_chat_ends_at_a_text_of_stop_and_takes_top_p(model_server: ModelServerProcess) -> None:
    _, whole = await chat(model_server, seed=7, max_tokens=40)
    text = whole["choices"][0]["message"]["content"]
    _, cut = await chat(model_server, seed=7, max_tokens=40, stop=[text[5:7]])
    assert cut["choices"][0]["message"]["content"] == text[: text.index(text[5:7])]
    assert cut["usage"]["completion_tokens"] < whole["usage"]["completion_tokens"]
    likeliest = [(await chat(model_server, seed=seed, top_p=1e-6))[1]["choices"] for seed in (1, 2)]
    assert likeliest[0] == likeliest[1] == (await chat(model_server, temperature=0))[1]["choices"]


async def test_answers_that_are_asked_for_together_end_each_by_itself(model_server: ModelServerProcess) -> None:
    ended: list[int] = []

    async def ask(tokens: int) -> None:
        assert (await chat(model_server, max_tokens=tokens, seed=3))[0] == 200
        ended.append(tokens)

    await asyncio.gather(*(ask(tokens) for tokens in (400, 4, 300, 3, 200, 2)))
    assert ended[-1] in (400, 300, 200) and len(ended) == 6
