"""Model server: serves one base model for rollouts, production and training.

``/v1/chat/completions`` and ``/v1/models`` are OpenAI's. A model is named ``base`` or ``base@digest``: the digest is
the SHA-256 of a state that was uploaded to ``/weights/<digest>``. A client that gets a 404 uploads the state and asks
again. A state uploaded with ``?keep=1`` (releases) survives a restart. ``/api/v1/...`` are the training calls of the
Tinker API, as its SDK makes them. The module is one server: all addresses share its states, its queue and its answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from training.weights.chat import ChatTokens
from training.weights.dialect import WEIGHTED_ONLY
from training.weights.engine import BASE, Adam, BadInput, Datum, Engine, TokenDraw, TokensDrawn, UnknownWeights
from training.weights.turns import Turns

MOST_STATE: Final = 2**31  # bytes of a state that is put here
MOST_BODY: Final = 64 * 2**20  # bytes of all other requests
BODY_SECONDS: Final = 20.0  # for the arrival of a body, and one more for each MiB that was announced
BODY_BYTES_PER_SECOND: Final = 2**20
MOST_SAMPLES: Final = 1_024  # of one prompt in one request
MOST_RANK: Final = 1_024  # of an adapter
MOST_STOPS: Final = 16
MOST_SESSIONS: Final = 10_000  # of samplers; those that began first end
MOST_ANSWERS: Final = 1_000  # results that are kept until they are asked for
PATIENCE: Final = 20.0  # seconds after which a client that waits for a result has to ask again
SEPARATOR: Final = "@"
HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
SAMPLED: Final = frozenset(
    {
        "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "seed", "tools", "stream", "n",
        "top_p", "stop", "stream_options", "logprobs", "return_token_ids", "tool_choice", "parallel_tool_calls", "user",
    }
)  # fmt: skip

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ModelServer:
    """``name`` is what the base model is called; ``token`` lets in (empty: everybody who reaches it). ``saved`` is the
    folder for states that the Tinker API's ``save_weights`` keeps here."""

    def __init__(self, engine: Engine, chat: ChatTokens, *, name: str, token: str, saved: Path) -> None:
        self.engine, self.chat, self.name, self._token, self._saved = engine, chat, name, token, saved
        self.turns = Turns(engine)
        self._results: OrderedDict[str, asyncio.Task[dict[str, Any]]] = OrderedDict()
        self._samplers: OrderedDict[str, str] = OrderedDict()  # of sampling sessions: whose weights

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=MOST_STATE)
        training: Mapping[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "create_model": self._create, "forward": self._forward, "forward_backward": self._forward_backward,
            "optim_step": self._optim_step, "save_weights": self._save, "load_weights": self._load,
            "save_weights_for_sampler": self._save_for_sampler, "asample": self._sample, "unload_model": self._unload,
        }  # fmt: skip
        app.add_routes([web.post(f"/api/v1/{at}", self._promised(work)) for at, work in training.items()])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/v1/models", self._models),
                web.post("/v1/chat/completions", self._complete),
                web.get("/weights/{name}", self._give_weights),
                web.put("/weights/{name}", self._take_weights),
                web.get("/api/v1/healthz", self._health),
                web.get("/api/v1/get_server_capabilities", self._capabilities),
                web.post("/api/v1/client/config", self._client_config),
                web.post("/api/v1/telemetry", self._telemetry),
                web.post("/api/v1/create_session", self._session),
                web.post("/api/v1/session_heartbeat", self._session),
                web.post("/api/v1/create_sampling_session", self._sampling_session),
                web.post("/api/v1/get_info", self._info),
                web.post("/api/v1/retrieve_future", self._retrieve),
            ]
        )
        app.on_shutdown.append(self._closing)
        return app

    # -- OpenAI's ----------------------------------------------------------------------------------------------------

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.name, "object": "model", "owned_by": "own"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await _body(request)
        if unknown := sorted(asked.keys() - SAMPLED):
            raise BadInput(f"{unknown[0]} is not known here: it would change what is sampled, or nothing.")
        if asked.get("n", 1) != 1:
            raise BadInput("n is 1: ask again for further answers.")
        if not isinstance(asked.get("stream_options") or {}, dict):
            raise BadInput("stream_options is an object.")
        messages = asked.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
            raise BadInput("messages is a list of messages, and not empty.")
        weights = await self._weights_of(str(asked.get("model", "")))
        prompt = self.chat.prompt(messages, asked.get("tools"))
        limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
        room = self.engine.context - len(prompt)
        if room < 1:
            raise BadInput(f"The prompt has {len(prompt)} tokens; with its answer it has to fit {self.engine.context}.")
        draw = TokenDraw(
            prompt,
            room if limit is None else min(_whole(limit, "max_tokens", 1), room),
            _number(asked.get("temperature", 1.0), "temperature", 0.0, 5.0),
            _whole(asked.get("seed") or uuid.uuid4().int % 2**31, "seed", 0),
            _top_p(asked),
            _stop(asked),
        )
        drawn = await self.turns.draw(weights, draw)
        answer = self._answer(asked, draw, drawn)
        return await self._streamed(request, asked, answer) if asked.get("stream") else web.json_response(answer)

    def _answer(self, asked: Mapping[str, Any], draw: TokenDraw, drawn: TokensDrawn) -> dict[str, Any]:
        message = self.chat.message(drawn.ids, draw.stop)
        reason = "tool_calls" if message.get("tool_calls") else drawn.finish_reason
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reason}
        if asked.get("logprobs"):
            pairs = zip(drawn.ids, drawn.logprobs, strict=True)
            choice["logprobs"] = {"content": [{"token": self.chat.token(id), "logprob": value} for id, value in pairs]}
        usage = {"prompt_tokens": len(draw.prompt), "completion_tokens": len(drawn.ids)}
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked.get("model", self.name),
            "choices": [choice],
            "usage": usage | {"total_tokens": sum(usage.values())},
        }
        if asked.get("return_token_ids"):
            choice["token_ids"] = list(drawn.ids)
            answer["prompt_token_ids"] = list(draw.prompt)
        return answer

    async def _streamed(self, request: web.Request, asked: Mapping[str, Any], answer: dict[str, Any]) -> web.Response:
        """The answer as events: all of it in one piece, since it is drawn together with others."""
        choice, usage = answer["choices"][0], answer.pop("usage")
        message = choice.pop("message")
        message["tool_calls"] = [{"index": at} | one for at, one in enumerate(message.get("tool_calls", []))]
        head = answer | {"object": "chat.completion.chunk"}
        choices = [choice | {"delta": message, "finish_reason": None}], [choice | {"delta": {}}]
        events = [head | {"choices": one} for one in choices]
        if (asked.get("stream_options") or {}).get("include_usage"):
            events.append(head | {"choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    async def _weights_of(self, model: str) -> str:
        """The weights of a model's name; states stored on disk are loaded on first use."""
        name, _, digest = model.partition(SEPARATOR)
        if name == self.name and self.engine.loaded(digest or BASE):
            return digest or BASE
        if name == self.name and digest.isalnum() and (self._saved / digest).is_file():
            return await self._restored(digest)
        raise UnknownWeights(f"There is no model {model!r} here. This server has {self.name} and what is put here.")

    # -- states ------------------------------------------------------------------------------------------------------

    async def _give_weights(self, request: web.Request) -> web.Response:
        """The state of weights, which are from now on here under its digest too, as chats name them."""
        name = request.match_info["name"]
        state, _ = await self.turns.run(self.engine.save, name)
        digest = hashlib.sha256(state).hexdigest()
        await self._put(digest, state)
        return web.Response(body=state, headers={"x-sha256": digest})

    async def _take_weights(self, request: web.Request) -> web.Response:
        name, state = request.match_info["name"], await request.read()
        if hashlib.sha256(state).hexdigest() != name:
            raise BadInput("The name of a state is its SHA-256: this one was damaged on its way.")
        await self._put(name, state)
        if request.query.get("keep"):
            await self._keep(name, state)
        return web.json_response({"loaded": name})

    async def _keep(self, digest: str, state: bytes) -> None:
        """Writes a state to the folder that a restarted server reads."""

        def write() -> None:
            self._saved.mkdir(parents=True, exist_ok=True)
            partial = self._saved / f".{uuid.uuid4().hex}"
            partial.write_bytes(state)
            partial.rename(self._saved / digest)

        await asyncio.to_thread(write)

    async def _put(self, digest: str, state: bytes) -> None:
        if not self.engine.loaded(digest):
            await self.turns.run(self.engine.load, digest, state)

    # -- the Tinker API ------------------------------------------------------------------------------------------------

    async def _health(self, _: web.Request) -> web.Response:
        drawn = {"tokens": self.turns.drawn, "seconds": self.turns.drawing}
        return web.json_response({"status": "ok", "model": self.name} | drawn | self.engine.describe())

    async def _capabilities(self, _: web.Request) -> web.Response:
        model = {"model_name": self.name, "max_context_length": self.engine.context}
        return web.json_response({"supported_models": [model]})

    async def _client_config(self, _: web.Request) -> web.Response:
        """The newer transports that clients may use: none, only JSON by REST."""
        return web.json_response({})

    async def _telemetry(self, _: web.Request) -> web.Response:
        """Accepts an SDK's telemetry and discards it."""
        return web.json_response({"status": "accepted"})

    async def _session(self, _: web.Request) -> web.Response:
        return web.json_response({"type": "create_session", "session_id": str(uuid.uuid4())})

    async def _sampling_session(self, request: web.Request) -> web.Response:
        session = self._sampler(self._at((await _body(request)).get("model_path")))
        return web.json_response({"type": "create_sampling_session", "sampling_session_id": session})

    def _sampler(self, weights: str) -> str:
        """The name of a new session that samples from these weights."""
        self._samplers[session := str(uuid.uuid4())] = weights
        while len(self._samplers) > MOST_SESSIONS:
            self._samplers.popitem(last=False)
        return session

    async def _info(self, request: web.Request) -> web.Response:
        model = str((await _body(request)).get("model_id"))
        if not self.engine.loaded(model):
            raise UnknownWeights(f"No model {model!r} is loaded.")
        data = {"arch": "", "model_name": self.name, "tokenizer_id": self.name}
        return web.json_response({"type": "get_info", "model_data": data, "model_id": model, "model_name": self.name})

    async def _create(self, asked: dict[str, Any]) -> dict[str, Any]:
        if (base := asked.get("base_model")) != self.name:
            raise BadInput(f"This model server trains {self.name}; got base_model {base!r}.")
        lora = _object(asked.get("lora_config") or {"rank": 0}, "lora_config")
        model = uuid.uuid4().hex
        rank, seed = _whole(lora.get("rank"), "rank", 0, MOST_RANK), _whole(lora.get("seed") or 0, "seed", 0)
        await self.turns.run(self.engine.create, model, rank, seed)
        return {"type": "create_model", "model_id": model}

    async def _forward(self, asked: dict[str, Any]) -> dict[str, Any]:
        data, _, only = _data(asked.get("forward_input"))
        rows, needed = [datum.ids for datum in data], [datum.weights for datum in data] if only else None
        found = await self.turns.run(self.engine.logprobs, str(asked.get("model_id")), rows, needed)
        return self._outputs(found, data)

    async def _forward_backward(self, asked: dict[str, Any]) -> dict[str, Any]:
        data, loss, only = _data(asked.get("forward_backward_input"))
        if loss != "cross_entropy":
            raise BadInput(f"loss_fn is cross_entropy: others are linear in it once they are known; got {loss!r}.")
        model = str(asked.get("model_id"))
        work = partial(self.engine.forward_backward, model, data, weighted_only=only)
        return self._outputs(await self.turns.run(work), data)

    @staticmethod
    def _outputs(found: tuple[list[list[float]], float], data: list[Datum]) -> dict[str, Any]:
        logprobs, seconds = found
        rows = [logprob[1:] for logprob in logprobs]
        outputs = [{"logprobs": {"data": row, "dtype": "float32", "shape": [len(row)]}} for row in rows]
        pairs = zip(rows, data, strict=True)
        loss = -sum(sum(w * p for w, p in zip(one.weights[1:], row, strict=True)) for row, one in pairs)
        metrics = {"loss:sum": loss, "compute_seconds:sum": seconds}
        return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": metrics}

    async def _optim_step(self, asked: dict[str, Any]) -> dict[str, Any]:
        given = _object(asked.get("adam_params") or {}, "adam_params")
        try:
            adam = Adam(**{name: float(value) for name, value in given.items()})
        except (TypeError, ValueError) as error:
            raise BadInput(f"adam_params: {error}") from error
        metrics, seconds = await self.turns.run(self.engine.optim_step, str(asked.get("model_id")), adam)
        return {"type": "optim_step", "metrics": metrics | {"compute_seconds:sum": seconds}}

    async def _save(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(asked.get("path"), str):
            raise BadInput("path is a name for what is saved.")
        return await self._keep_model(asked)

    async def _keep_model(self, asked: dict[str, Any]) -> dict[str, Any]:
        state, _ = await self.turns.run(self.engine.save, str(asked.get("model_id")))
        digest = hashlib.sha256(state).hexdigest()
        await self._keep(digest, state)
        return {"type": "save_weights", "path": f"tinker://{asked['model_id']}/weights/{digest}"}

    async def _save_for_sampler(self, asked: dict[str, Any]) -> dict[str, Any]:
        saved = await self._keep_model(asked)
        session = self._sampler(await self._restored(saved["path"]))
        return saved | {"type": "save_weights_for_sampler", "sampling_session_id": session}

    async def _load(self, asked: dict[str, Any]) -> dict[str, Any]:
        digest, model = await self._restored(str(asked.get("path", ""))), str(asked.get("model_id"))
        state, _ = await self.turns.run(self.engine.save, digest)
        await self.turns.run(self.engine.load, model, state)
        return {"type": "load_weights", "path": asked.get("path")}

    async def _restored(self, path: str) -> str:
        """The digest of a saved state, which is loaded under it by then."""
        digest = self._at(path)
        if not self.engine.loaded(digest):
            try:
                await self._put(digest, await asyncio.to_thread((self._saved / digest).read_bytes))
            except OSError as error:
                raise UnknownWeights(f"Nothing is saved at {path!r}.") from error
        return digest

    @staticmethod
    def _at(path: Any) -> str:
        name = str(path or BASE).rpartition("/")[2]
        if not name.isalnum():
            raise BadInput(f"{path!r} is no path of saved weights.")
        return name

    async def _sample(self, asked: dict[str, Any]) -> dict[str, Any]:
        session = asked.get("sampling_session_id")
        weights = self._samplers.get(str(session), BASE) if session else await self._restored_or_base(asked)
        given = _object(asked.get("sampling_params") or {}, "sampling_params")
        limit = _whole(given.get("max_tokens") or 16, "max_tokens", 1, self.engine.context)
        prompt = tuple(_ids(asked.get("prompt")))
        seed = _whole(given.get("seed") or uuid.uuid4().int % 2**31, "seed", 0)
        warmth = _number(given.get("temperature", 1.0), "temperature", 0.0, 5.0)
        draws = [
            TokenDraw(prompt, limit, warmth, seed + at, _top_p(given), _stop(given))
            for at in range(_whole(asked.get("num_samples", 1), "num_samples", 1, MOST_SAMPLES))
        ]
        drawn = await asyncio.gather(*(self.turns.draw(weights, draw) for draw in draws))
        sequences = [
            {"tokens": list(one.ids), "logprobs": list(one.logprobs), "stop_reason": one.finish_reason} for one in drawn
        ]
        return {"type": "sample", "sequences": sequences}

    async def _restored_or_base(self, asked: dict[str, Any]) -> str:
        return await self._restored(str(asked["model_path"])) if asked.get("model_path") else BASE

    async def _unload(self, asked: dict[str, Any]) -> dict[str, Any]:
        await self.turns.run(self.engine.drop, str(asked.get("model_id")))
        return {"type": "unload_model", "model_id": asked.get("model_id")}

    # -- results that are asked for later ------------------------------------------------------------------------------

    def _promised(self, work: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]) -> Handler:
        async def promise(request: web.Request) -> web.StreamResponse:
            asked = await _body(request)
            name = uuid.uuid4().hex
            self._results[name] = asyncio.ensure_future(work(asked))
            while len(self._results) > MOST_ANSWERS:
                self._results.popitem(last=False)
            return web.json_response({"request_id": name, "model_id": asked.get("model_id")})

        return promise

    async def _retrieve(self, request: web.Request) -> web.Response:
        name = str((await _body(request)).get("request_id"))
        result = self._results.get(name)
        if result is None:
            raise UnknownWeights(f"There is no request {name!r}, or its result was asked for long ago.")
        done, _ = await asyncio.wait([result], timeout=PATIENCE)
        if not done:
            again = {"type": "try_again", "request_id": name, "queue_state": "active"}
            return web.json_response(again, status=408)
        try:
            return web.json_response(result.result())
        except (BadInput, UnknownWeights) as error:
            return web.json_response({"error": str(error), "category": "user"}, status=400)

    # -- around all ----------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token and request.path != "/health":
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            given = given or request.headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode()):
                return _error(401, "This model server wants its key.")
        if not self._token and not _asked_here(request):
            return _error(403, "This model server has no key: it answers programs of this machine, and no page.")
        if request.method == "POST" and request.content_type != "application/json":
            return _error(415, "Send JSON, as content-type: application/json.")
        if request.method != "PUT":
            request = request.clone(client_max_size=MOST_BODY)
        if not await _arrives(request):
            answer = _error(408, "The body did not arrive in time. Send it again, in one go.")
            answer.force_close()
            return answer
        try:
            return await handler(request)
        except RecursionError:
            return _error(400, "The request is nested too deeply.")
        except UnknownWeights as error:
            return _error(404, str(error.args[0]))
        except BadInput as error:
            return _error(400, str(error))

    async def _closing(self, _: web.Application) -> None:
        self.turns.close()


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


async def _arrives(request: web.Request) -> bool:
    """Reads the body. False: its caller is too slow."""
    size = request.content_length or MOST_BODY
    try:
        async with asyncio.timeout(BODY_SECONDS + size / BODY_BYTES_PER_SECOND):
            await request.read()
    except TimeoutError:
        return False
    return True


def _asked_here(request: web.Request) -> bool:
    """True for a program of this machine. A page in a browser sends an Origin, or another Host that leads to here."""
    host = request.headers.get("host", "").rpartition(":")[0] or request.headers.get("host", "")
    return "origin" not in request.headers and host.strip("[]") in HERE


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except ValueError as error:
        raise BadInput("The request is no JSON.") from error
    if not isinstance(found, dict):
        raise BadInput("The request is no JSON object.")
    return found


def _data(given: Any) -> tuple[list[Datum], str, bool]:
    """Rows as the Tinker API sends them: ``model_input`` are all tokens but the last, ``target_tokens`` all but the
    first, ``weights`` those of the targets. Then the loss, and whether only weighted targets are wanted."""
    data = []
    try:
        for one in given["data"]:
            ids, inputs = _ids(one["model_input"]), one["loss_fn_inputs"]
            targets = [int(token) for token in inputs["target_tokens"]["data"]]
            weights = (
                [float(value) for value in inputs["weights"]["data"]] if "weights" in inputs else [0.0] * len(targets)
            )
            if len(targets) != len(ids) or len(weights) != len(ids) or targets[:-1] != ids[1:]:
                raise BadInput("target_tokens are the tokens of model_input, one further on, and have a weight each.")
            data.append(Datum((*ids, targets[-1]), (0.0, *weights)))
        return data, str(given["loss_fn"]), WEIGHTED_ONLY in (given.get("loss_fn_config") or ())
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"The data are not as the Tinker API sends them: {error!r}") from error


def _ids(given: Any) -> list[int]:
    try:
        return [int(token) for chunk in given["chunks"] for token in chunk["tokens"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput("A text is given as chunks of token ids.") from error


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{name} is an object; got {str(value)[:60]!r}.")
    return value


def _whole(value: Any, name: str, low: int, high: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadInput(f"{name} is a whole number from {low} to {high}; got {str(value)[:60]!r}.")
    return value


def _top_p(given: Mapping[str, Any]) -> float:
    return _number(1.0 if given.get("top_p") is None else given["top_p"], "top_p", 1e-6, 1.0)


def _stop(given: Mapping[str, Any]) -> tuple[str, ...]:
    stop = given.get("stop") or []
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list) or len(texts) > MOST_STOPS or not all(isinstance(o, str) and o for o in texts):
        raise BadInput(f"stop is a text, or a list of at most {MOST_STOPS}.")
    return tuple(texts)


def _number(value: Any, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadInput(f"{name} is a number from {low:g} to {high:g}; got {value!r}.")
    return float(value)
