"""The engine over a server of the Tinker API: Tinker itself, SkyRL and others. Ours renders chats and keeps names;
the work is done there.

One model is trained there at a time. A state is the path under which the server keeps it, so it can be read again as
long as that server does; the model itself is unloaded when the model server ends.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

import aiohttp

from training.weights.dialect import datum, logprobs_in
from training.weights.engine import BASE, Adam, BadInput, Datum, TokenDraw, TokensDrawn, UnknownWeights

T = TypeVar("T")
MOST_NAMES: Final = 1_000
CALL_SECONDS: Final = 1_800.0
AT_ONCE: Final = 64


class TinkerEngine:
    """``address`` is the server's, ``model`` the name of its base model, ``key`` what it wants as ``x-api-key``."""

    def __init__(self, address: str, model: str, *, key: str = "") -> None:
        self._address, self._model = address.rstrip("/"), model
        self._headers = {"x-api-key": key} if key else {}
        self._states: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._live = self._live_name = ""  # the model that is trained there, and whose it is here
        self._live_state: dict[str, Any] | None = None  # what it was last saved as; None: it has moved since
        self._live_rank = 0
        self._session = ""
        found = _run(self._ask("get_server_capabilities", None))
        known = {one["model_name"]: one.get("max_context_length") for one in found.get("supported_models", ())}
        if known and model not in known:
            raise BadInput(f"{address} has no model {model}. It has: {', '.join(map(str, known))}.")
        self.context = int(known.get(model) or 32_768)

    def create(self, name: str, lora_rank: int, seed: int) -> None:
        self._put(name, {"rank": lora_rank, "seed": seed, "path": "", "sampler": ""})

    def load(self, name: str, state: bytes) -> None:
        try:
            found = json.loads(state)
            self._put(name, {one: found[one] for one in ("rank", "seed", "path", "sampler")})
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"These weights are of another kind of model server: {error!r}") from error

    def save(self, name: str) -> bytes:
        state = self._state(name)
        if self._live_name == name and self._live_state is None:
            place = uuid.uuid4().hex  # SkyRL names nothing by itself
            state["path"] = _run(self._call("save_weights", model_id=self._live, path=place))["path"]
            sampler = _run(self._call("save_weights_for_sampler", model_id=self._live, path=place))
            state["sampler"] = sampler.get("path") or state["path"]
            self._live_state = dict(state)
        return json.dumps(state, sort_keys=True).encode()

    def drop(self, name: str) -> None:
        """The model that is trained stays there for the next that goes on from it."""
        self._states.pop(name, None)

    def loaded(self, name: str) -> bool:
        return name == BASE or name in self._states

    def check(self, draw: TokenDraw) -> None:
        """The trainer refuses what it can't draw."""

    def sample(
        self,
        name: str,
        draws: Sequence[TokenDraw],
        arrivals: Callable[[], Iterable[TokenDraw]] = tuple,
        done: Callable[[int, TokensDrawn], None] = lambda number, drawn: None,
    ) -> list[TokensDrawn]:
        if name == BASE:
            source = {"base_model": self._model}
        else:
            self.save(name)
            source = {"model_path": self._state(name)["sampler"]}

        async def all_of_them() -> list[TokensDrawn]:
            gate = asyncio.Semaphore(AT_ONCE)
            return await asyncio.gather(*(self._drawn(source, draw, gate) for draw in draws))

        found = _run(all_of_them())
        for number, drawn in enumerate(found):
            done(number, drawn)
        return found

    def logprobs(
        self, name: str, rows: Sequence[Sequence[int]], needed: Sequence[Sequence[float]] | None = None
    ) -> list[list[float]]:
        asked = {"data": [datum(row) for row in rows], "loss_fn": "cross_entropy"}
        found = _run(self._call("forward", model_id=self._training(name), forward_input=asked))
        return logprobs_in(found)

    def forward_backward(self, name: str, data: Sequence[Datum], *, weighted_only: bool = False) -> list[list[float]]:
        model = self._training(name)
        asked = {"data": [datum(one.ids, one.weights) for one in data], "loss_fn": "cross_entropy"}
        return logprobs_in(_run(self._call("forward_backward", model_id=model, forward_backward_input=asked)))

    def optim_step(self, name: str, adam: Adam) -> dict[str, float]:
        model = self._training(name)
        self._live_state = None
        found = _run(self._call("optim_step", model_id=model, adam_params=asdict(adam)))
        metrics = {at: float(value) for at, value in (found.get("metrics") or {}).items()}
        return {"grad_norm": metrics.get("grad_norm", 0.0), **metrics}

    def close(self) -> None:
        """Gives the model up: a server has few places for adapters."""
        if self._live:
            _run(self._call("unload_model", model_id=self._live))
            self._live = ""

    def describe(self) -> dict[str, Any]:
        return {"engine": "tinker", "trainer": self._address, "loaded": list(self._states)}

    # -- inside --------------------------------------------------------------------------------------------------------

    def _training(self, name: str) -> str:
        """The server's model, with these weights in it. What was trained before and not saved is given up."""
        state: dict[str, Any] = {"rank": 8, "seed": 0, "path": "", "sampler": ""} if name == BASE else self._state(name)
        if self._live and (self._live_name == name or self._live_state == state):
            self._live_name = name
            return self._live
        if self._live and (not state["path"] or self._live_rank != state["rank"]):
            self.close()
        if not self._live:
            if not self._session:
                opened = _run(self._ask("create_session", {"tags": [], "user_metadata": None, "sdk_version": "0.22.3"}))
                self._session = opened["session_id"]
            self._live_rank = int(state["rank"])
            lora = {"rank": state["rank"], "seed": state["seed"]}
            made = self._call(
                "create_model", session_id=self._session, model_seq_id=0, base_model=self._model, lora_config=lora
            )
            self._live = _run(made)["model_id"]
        if state["path"]:
            _run(self._call("load_weights", model_id=self._live, path=state["path"], optimizer=True))
        self._live_name, self._live_state = name, dict(state)
        return self._live

    async def _drawn(self, source: dict[str, str], draw: TokenDraw, gate: asyncio.Semaphore) -> TokensDrawn:
        params: dict[str, Any] = {
            "max_tokens": draw.max_tokens, "temperature": draw.temperature, "seed": draw.seed,
        }  # fmt: skip
        params |= {"top_p": draw.top_p} if draw.top_p < 1 else {}
        params |= {"stop": list(draw.stop)} if draw.stop else {}
        prompt = {"chunks": [{"type": "encoded_text", "tokens": list(draw.prompt)}]}
        async with gate:
            found = await self._call("asample", prompt=prompt, sampling_params=params, num_samples=1, **source)
        one = found["sequences"][0]
        return TokensDrawn(tuple(one["tokens"]), tuple(one["logprobs"]), str(one["stop_reason"]))

    async def _call(self, call: str, **asked: Any) -> dict[str, Any]:
        promised = await self._ask(call, asked)
        if "request_id" not in promised:
            return promised
        async with asyncio.timeout(CALL_SECONDS):
            while True:
                found = await self._ask("retrieve_future", {"request_id": promised["request_id"]})
                if found.get("type") != "try_again":
                    break
        if "error" in found:
            raise BadInput(f"The trainer refuses {call}: {found['error']}")
        return found

    async def _ask(self, call: str, asked: dict[str, Any] | None) -> dict[str, Any]:
        method, address = "GET" if asked is None else "POST", f"{self._address}/api/v1/{call}"
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
        async with (
            aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session,
            session.request(method, address, json=asked) as answer,
        ):
            body = await answer.text()
            if answer.status >= 400 and answer.status != 408:
                raise BadInput(f"The trainer refuses {call} with status {answer.status}: {body[:300]}")
            found = json.loads(body)
            return found if isinstance(found, dict) else {}

    def _put(self, name: str, state: dict[str, Any]) -> None:
        self._states[name] = state
        while len(self._states) > MOST_NAMES:
            self._states.popitem(last=False)

    def _state(self, name: str) -> dict[str, Any]:
        if name not in self._states:
            raise UnknownWeights(f"No weights named {name!r} are loaded.")
        return self._states[name]


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
