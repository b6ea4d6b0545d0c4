"""Answers of a model as objects of a schema: asked for as the endpoint can, checked, and asked for once more. Pure.

Not every endpoint takes ``response_format``. So a question climbs down a ladder until one rung is taken: a JSON schema,
"some JSON object", plain text with the schema in the prompt. What can't be read even after one repair is refused and
counted, with its reason; it is never guessed at.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from budgets.llm.errors import Malformed
from budgets.llm.types import Message
from experiences.privacy import redact, redact_value
from experiences.rollouts.environments.answers import fences_in
from experiences.rollouts.interruption import interruptible
from experiences.rollouts.json_repairs import repaired
from experiences.rollouts.runtimes.base import Halted
from experiences.rollouts.runtimes.llm.calls import ChatModel, Conversation, ModelFailure, Sampling
from experiences.rollouts.thoughts import thoughts_ran_out, without_thoughts
from experiences.rollouts.tools.toolset import Toolset

MAX_OBJECTS: Final = 50  # places in a text that are tried as JSON
MAX_QUOTED: Final = 6_000  # characters of an unusable answer that its author is shown again
MAX_REASON: Final = 300
REPAIRED: Final = "its JSON had faults of punctuation, which were repaired"
REPAIR: Final = "That can't be used: {why}. Reply with one JSON object only, which fits this JSON schema:\n{schema}"
IN_TEXT: Final = "Reply with one JSON object and nothing else. It has to fit this JSON schema:\n{schema}"

T = TypeVar("T", bound=BaseModel)


class UnusableAnswer(ValueError):
    """A text that holds no object of the schema."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Result of one question. ``reply`` is None if there was no usable answer; ``reason`` is the cause.

    A usable answer has a reason if its JSON was repaired. ``asked`` is a digest of the question, ``model`` the model
    that was asked; ``own_ms`` is the time spent on our side.
    """

    key: str
    stage: str
    iteration: int
    asked: str
    usable: bool
    reply: dict[str, Any] | None
    reason: str = ""
    repaired: bool = False
    calls: int = 1
    tokens: int = 0
    cost_micros: int = 0
    latency_ms: float = 0.0
    own_ms: float = 0.0
    model: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _forget(_: str, __: str) -> ModelAnswer | None:
    """The default ``recall``: nothing was asked before."""
    return None


def _ignore(_: Any) -> None:
    """The default ``keep``, and a talk's ``record``: these calls are no steps of an agent."""


def _go_on() -> None:
    """The default ``check``."""


class Form(NamedTuple):
    """A way to request JSON: by a response format, by instructions, or by both."""

    response_format: Mapping[str, Any] | None = None
    words: tuple[Message, ...] = ()


@dataclass
class AnswerAccount:
    """Usage of one answer, including all calls that it needed."""

    calls: int = 0
    tokens: int = 0
    cost_micros: int = 0
    latency_ms: float = 0.0
    waited_ms: float = 0.0
    repaired: bool = False
    note: str = ""


@dataclass
class Ladder:
    """Chooses how an endpoint is asked for JSON: the first form that it accepts, remembered after an answer.
    ``at_once``: switches when a form is refused, until a question is refused in every form."""

    at_once: bool = True
    rung: int = field(default=0, init=False)

    async def text(
        self, talk: Conversation, messages: Sequence[Message], forms: Sequence[Form], account: AnswerAccount
    ) -> str:
        """The model's text; "" for what is no answer, but was paid for.

        Raises:
            Halted: no money, no service, no right.
            ModelFailure: the endpoint refuses the question in every form.
        """
        at, began = self.rung, time.perf_counter()
        try:
            while True:
                try:
                    answer = await talk.once([*messages, *forms[at].words], response_format=forms[at].response_format)
                    break
                except ModelFailure:
                    at += 1
                    if self.at_once:  # of several that are refused together, the first steps down
                        self.rung = at = max(self.rung, at) if at < len(forms) else 0
                    if at in (0, len(forms)):
                        raise
        except Malformed as error:
            account.calls += 1
            account.cost_micros += error.spent_micros
            return ""
        finally:
            account.waited_ms += (time.perf_counter() - began) * 1e3
        if not self.at_once:
            self.rung = max(self.rung, at)
        account.calls += 1
        account.tokens += answer.usage.total_tokens
        account.cost_micros += answer.spent_micros or answer.cost_micros
        account.latency_ms += answer.latency_ms
        return answer.text


def talk_with(
    model: ChatModel, sampling: Sampling, prefix: str, purpose: str, iteration: int | None, seed: int = 0
) -> Conversation:
    """Calls that are no steps of an agent."""
    return Conversation(model, sampling, Toolset(), prefix, purpose, seed, _ignore, _go_on, iteration)


def repairing(unusable: str, complaint: str) -> list[Message]:
    """Messages that follow an unusable answer: the answer, if there is one, and the complaint."""
    answer = [Message("assistant", unusable[:MAX_QUOTED])] if unusable.strip() else []
    return [*answer, Message("user", complaint)]


@dataclass
class Asker:
    """Asks one model questions whose answers are objects.

    ``prefix`` names job and attempt, so that no call has another's key. ``recall(key, digest)`` gives what the same
    question was answered before a crash: it is not asked, nor paid for, again; ``keep`` gets each new answer at once.
    """

    model: ChatModel
    sampling: Sampling
    prefix: str
    purpose: str = "reflection"
    recall: Callable[[str, str], ModelAnswer | None] = _forget
    keep: Callable[[ModelAnswer], None] = _ignore
    check: Callable[[], None] = _go_on

    def __post_init__(self) -> None:
        self._ladder = Ladder()

    async def ask(
        self,
        schema: type[T],
        messages: Sequence[Message],
        *,
        key: str,
        stage: str,
        iteration: int = 0,
        complaint: Callable[[T], str] | None = None,
    ) -> T | None:
        """The answer as an object of ``schema``; None without a usable answer; ``keep`` receives either.

        ``complaint`` says what else is wrong with an answer ("" for nothing): it can be mended in the repair round.

        Raises:
            Halted: no money, no service, no right: the work can't go on for now. An answer that could not be mended
                for that reason is kept as it is: it was paid for.
        """
        asked = digest(messages)
        earlier = self.recall(key, asked)
        if earlier is not None:
            return schema.model_validate(earlier.reply) if earlier.usable else None
        self.check()
        began = time.perf_counter()
        account = AnswerAccount()
        value, why, halted = None, "", None
        try:
            async with interruptible(self.check):
                value, why, halted = await self._answer(schema, messages, key, iteration, account, complaint)
            if value is not None and (clean := redact_value(reply := value.model_dump(mode="json"))) is not reply:
                value = schema.model_validate(clean)  # what is stored and what is used are the same
        except ModelFailure as error:
            why = f"the model refused the question: {error}"
        took = (time.perf_counter() - began) * 1e3
        self.keep(
            ModelAnswer(
                key=key,
                stage=stage,
                iteration=iteration,
                asked=asked,
                usable=value is not None,
                reply=None if value is None else value.model_dump(mode="json"),
                reason=redact(why or account.note)[:MAX_REASON],
                repaired=account.repaired,
                calls=account.calls,
                tokens=account.tokens,
                cost_micros=account.cost_micros,
                latency_ms=account.latency_ms,
                own_ms=max(0.0, took - account.waited_ms),
                model=self.sampling.model,
            )
        )
        if halted is not None:
            raise halted
        return value

    async def _answer(
        self,
        schema: type[T],
        messages: Sequence[Message],
        key: str,
        iteration: int,
        account: AnswerAccount,
        complaint: Callable[[T], str] | None,
    ) -> tuple[T | None, str, Halted | None]:
        """(the object, why there is none, what halted the work before it could be mended)."""
        talk = talk_with(self.model, self.sampling, f"{self.prefix}/{key}", self.purpose, iteration)
        forms = forms_of(schema)
        answer = await self._ladder.text(talk, messages, forms, account)
        value, why = _read(schema, answer, account)
        if value is not None and complaint is not None:
            why = complaint(value)
        if not why:
            return value, "", None
        repair = repairing(answer, REPAIR.format(why=why, schema=json.dumps(shape_of(schema))))
        account.repaired = True
        try:
            answer = await self._ladder.text(talk, [*messages, *repair], forms, account)
        except Halted as halted:
            account.repaired = False
            return value, "" if value is not None else why, halted
        except ModelFailure as error:  # what could be read of the first answer counts, and so does the attempt
            account.calls += 1
            refused = f"the model refused the repair: {error}"
            return value, refused if value is not None else f"{why}; {refused}", None
        mended, why = _read(schema, answer, account)
        return (value, "", None) if mended is None and value is not None else (mended, why, None)


@lru_cache(maxsize=64)  # pydantic takes 2 ms of a processor for one, more than all else of a question
def shape_of(schema: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema that answers of ``schema`` have to fit. One object for all who ask: read it, do not change it."""
    return schema.model_json_schema()


@lru_cache(maxsize=64)
def forms_of(schema: type[BaseModel]) -> tuple[Form, ...]:
    """A schema that answers have to fit, some object with the schema in words, words alone."""
    shape = shape_of(schema)
    words = (Message("user", IN_TEXT.format(schema=json.dumps(shape))),)
    named = {"name": schema.__name__.lower(), "schema": shape, "strict": False}
    return (
        Form({"type": "json_schema", "json_schema": named}),
        Form({"type": "json_object"}, words),
        Form(None, words),
    )


def _read(schema: type[T], text: str, account: AnswerAccount) -> tuple[T | None, str]:
    """(the object, "") or (None, why there is none). A repair of its JSON is noted in the account."""
    try:
        value, account.note = read_noted(schema, text)
    except UnusableAnswer as why:
        return None, str(why)
    return value, ""


def read(schema: type[T], text: str) -> T:
    """The one object of ``schema`` in a model's text: see ``read_noted``."""
    return read_noted(schema, text)[0]


def read_noted(schema: type[T], text: str) -> tuple[T, str]:
    """The one object of ``schema`` in a model's text, in a fence or between other words. Thoughts are not read. Where
    no object can be read strictly, its JSON is repaired, and the second value says so.

    Raises:
        UnusableAnswer: there is none, or there are several that differ.
    """
    fitting, why = _fitting(schema, json_objects(text))
    note = ""
    if not fitting and (mended := repaired_object(text)) is not None:
        fitting, why = _fitting(schema, [mended])
        note = REPAIRED
    if not fitting:
        raise UnusableAnswer(why or nothing_in(text))
    if any(one != fitting[0] for one in fitting[1:]):
        raise UnusableAnswer("there are several objects in it that differ")
    return fitting[0], note


def _fitting(schema: type[T], found: Sequence[Mapping[str, Any]]) -> tuple[list[T], str]:
    """(the values that fit a schema, why the last of the others does not)."""
    fitting, why = [], ""
    for value in found:
        try:
            fitting.append(schema.model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the object"
            why = f"{where}: {first['msg']}"
    return fitting, why


def nothing_in(text: str) -> str:
    """The reason why a text holds no object."""
    if thoughts_ran_out(text):
        return "its thoughts ran out before an answer"
    return "there is no JSON object in it" if text.strip() else "it is empty"


def repaired_object(text: str) -> dict[str, Any] | None:
    """The object of a text whose JSON has faults of punctuation; None: there is none to repair."""
    text = without_thoughts(text)
    for written in (*fences_in(text), text[max(text.find("{"), 0) : text.rfind("}") + 1]):
        if isinstance(value := repaired(written), dict):
            return value
    return None


def json_objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in a text without its thoughts, outermost ones only."""
    decoder, found, at = json.JSONDecoder(), [], 0
    text = without_thoughts(text)
    for _ in range(MAX_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        found.append(value)
    return found


def digest(messages: Sequence[Message]) -> str:
    """SHA-256 of what is asked."""
    return hashlib.sha256(json.dumps([[message.role, message.content] for message in messages]).encode()).hexdigest()
