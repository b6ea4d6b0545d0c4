"""A model server whose model gets better or worse by its context: it proves systems that learn for frozen models.

As an agent it plays the tasks of a ``World``: how often it succeeds depends on the advice in its prompt. Asked for
JSON it is a reflector: it reads the attempts it is shown and proposes lessons, good and bad ones (``Reflector``), in
JSON that is spoiled now and then (``Habits``). Asked for a prompt in free text it writes one, by the same knowledge
(``Writer``). It knows nothing of the system that asks it.
By hand: ``python -m tests.support.simulated_model --seed 3 [--port 8201] [--latency .5] [--null] [--clean]``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.support.llm_server import ModelServer
from tests.support.simulated_habits import Habits, written
from tests.support.simulated_prompt import read, schema_of, texts_of
from tests.support.simulated_reflector import Reflector
from tests.support.simulated_sorter import sorted_queries, sorts
from tests.support.simulated_writer import Writer, fields_of, filed, is_asked_to_write, list_wanted
from tests.support.world import Advice, Asked, World, tokens_in
from tests.support.world_words import spun

Body = Mapping[str, Any]

TERSE: Final = 140  # tokens of an answer below which it does not reason aloud
MAX_COUNTED: Final = 100_000  # different requests whose repetitions are counted
RELIANCE: Final = ("I kept to the hint on {}.", "The hint on {} was of use here.", "I thought of the {} as I was told.")
OPENERS: Final = ("This is about {}.", "So: {}.", "A case of {}.", "Let me see; it is about {}.")
GOOD: Final = ("I went through it part by part.", "It came out well.", "I worked it out and it fits.")
BAD: Final = ("I am fairly sure all the same.", "That should do.", "I left it at that.")
LAST: Final = ("Answer: {}", "Answer: {}", "**Answer:** {}", "Answer: **{}**", "Answer: `{}`")
PLAN: Final = "1. Read what is given.\n2. Work it out part by part.\n3. Say it in the form that was asked for."
_PLANS = re.compile(r"\bmake a plan\b", re.I)
_VERIFIES = re.compile(r"\bverdict\b", re.I)
_SUMMARISES = re.compile(r"\bsummar|\bcompare\b|\breflect\b", re.I)
_ANSWER = re.compile(r"^\W*answer\W*:\W*(.*?)\W*$", re.I | re.M)


class SimulatedModel:
    """The brain of a ``ModelServer``. ``calls`` counts requests by role: "agent", "reflector" and "refused".

    ``seed`` varies the model in one world. Requests that carry a seed are answered alike whichever other requests come
    in between; others differ with each repetition.
    """

    def __init__(self, world: World, habits: Habits | None = None, *, seed: int = 0) -> None:
        self.world, self.seed = world, seed
        self.habits = Habits.drawn(world.seed + 1_000 * seed) if habits is None else habits
        self.calls: Counter[str] = Counter()
        self.formed: Counter[str] = Counter()  # replies of the reflector by what became of them; "" for nothing
        self.noted: dict[str, list[float]] | None = None  # see ``truth``
        self._asked: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def truth(self) -> Iterator[dict[str, list[float]]]:
        """Records for each agent's call the true probability of success with its context: by query."""
        self.noted = {}
        try:
            yield self.noted
        finally:
            self.noted = None

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        return self.reply({"messages": messages})

    def refusal(self, body: Body) -> dict[str, Any] | None:
        """The error of a provider that does not know this ``response_format``; None where all is well."""
        wanted = (body.get("response_format") or {}).get("type")
        allowed = {"json_schema": ("json_schema", "json_object"), "json_object": ("json_object",), "none": ()}
        if wanted in (None, "text"):
            return None
        message = ""
        if wanted not in allowed[self.habits.strictness]:
            message = f"Invalid parameter: 'response_format' of type '{wanted}' is not supported with this model."
        elif wanted == "json_object" and not any("json" in text.lower() for text in texts_of(body["messages"])):
            message = (
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            )
        if not message:
            return None
        self.calls["refused"] += 1
        return {"message": message, "type": "invalid_request_error", "param": "response_format", "code": None}

    def reply(self, body: Body) -> str:
        schema = schema_of(body)
        writes = schema is None and is_asked_to_write(body["messages"])
        acts = schema is None and not writes
        self.calls["agent" if acts else "reflector"] += 1
        rng = self._random(body, repeatable=acts)
        if writes:
            return Writer(self.world, self.habits, body["messages"], rng).answer()
        if schema is None:
            return self._act(body, rng)
        seen = read(self.world, body["messages"])
        form = self.habits.form(rng, again=seen.again)
        self.formed[form] += 1
        if names := sorts(schema):
            found = sorted_queries(self.world, body["messages"], names, self.habits.sorting, rng)
            return written(found, form, rng)
        if name := list_wanted(schema):
            return written({name: Writer(self.world, self.habits, body["messages"], rng).lines()}, form, rng)
        return written(Reflector(self.world, self.habits, seen, rng).answer(schema), form, rng)

    def _random(self, body: Body, *, repeatable: bool) -> random.Random:
        """Drawn from the request; unless it is repeatable (has a seed, or no temperature), from its number too."""
        texts = "\0".join(texts_of(body["messages"]))
        given = f"{self.world.seed}/{self.seed}/{body.get('seed')}/{texts}"
        digest = hashlib.blake2b(given.encode("utf-8", "replace"), digest_size=12).digest()
        fixed = repeatable and (body.get("seed") is not None or body.get("temperature") == 0)
        with self._lock:
            if len(self._asked) >= MAX_COUNTED:
                self._asked.clear()
            self._asked[digest] += 1
            number = 0 if fixed else self._asked[digest]
        return random.Random(int.from_bytes(digest, "big") + number)

    def _act(self, body: Body, rng: random.Random) -> str:
        """One message of an agent: an answer, or the part of the work that its prompt wants."""
        messages = body["messages"]
        system = "\n".join(texts_of(messages, "system", "developer"))
        asked, last, advice = self._question(messages)
        if asked is None:
            return self._bewildered(messages, rng)
        if _PLANS.search(system):
            return PLAN
        given = _ANSWER.findall(last)
        if _VERIFIES.search(system):
            return self._verdict(asked, given, rng)
        if given and "notes:" in last.lower():
            return f"The notes say it.\n{rng.choice(LAST).format(given[-1])}"
        heeded = self.world.advice_in("\n".join((system, *advice)))
        length = tokens_in(system) + sum(map(tokens_in, advice))
        chance = self.world.chance(asked, heeded, length)
        if self.noted is not None:
            self.noted.setdefault(asked.query, []).append(chance)
        right = rng.random() < chance
        answer = str(asked.answer) if right else asked.wrong(rng)
        if fields := fields_of(messages):
            return filed(fields, answer)
        final = rng.choice(LAST).format(answer)
        most = body.get("max_completion_tokens") or body.get("max_tokens") or TERSE
        return final if most < TERSE else f"{self._reasoning(asked, heeded, right, rng)}\n{final}"

    def _question(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Asked | None, str, list[str]]:
        """The query, the text after it in its message, and what else the user said. Advice that is in the
        query's own line is a part of the task and no advice."""
        users = texts_of(messages, "user")
        for index in range(len(users) - 1, -1, -1):
            lines = users[index].splitlines()
            for at in range(len(lines) - 1, -1, -1):
                if found := self.world.find(lines[at]):
                    beside = "\n".join(lines[:at] + lines[at + 1 :])
                    shown = [*users[:index], beside, *users[index + 1 :]]
                    return found[-1], "\n".join(lines[at + 1 :]), [one for one in shown if one]
        return None, "", []

    def _bewildered(self, messages: Sequence[Mapping[str, Any]], rng: random.Random) -> str:
        """The answer without a task: a summary if the prompt wants one."""
        if _SUMMARISES.search("\n".join(texts_of(messages))):
            seen = read(self.world, messages)
            return rng.choice(seen.felt) if seen.felt else "There is not much to say about it."
        return "I can't make out what is asked.\nAnswer: unknown"

    def _verdict(self, asked: Asked, given: list[str], rng: random.Random) -> str:
        """A verifier that lets most of it pass."""
        right = bool(given) and given[-1].casefold() == str(asked.answer).casefold()
        return "VERDICT: right" if rng.random() < (0.95 if right else 0.7) else "VERDICT: wrong. It looks off."

    def _reasoning(self, asked: Asked, heeded: frozenset[Advice], right: bool, rng: random.Random) -> str:
        """Its report: the advice it kept to, or the symptom of what it lacked or was led into."""
        said = [rng.choice(OPENERS).format(spun(asked.kind.noun, rng))]
        known = sorted(heeded, key=lambda one: one.name)
        if known and rng.random() < 0.7:
            said.append(rng.choice(RELIANCE).format(rng.choice(known).topic))
        if right:
            return " ".join((*said, rng.choice(GOOD)))
        lacking = [one.symptom for one in self.world.needed(asked.kind) if one not in heeded]
        misled = [f"I let the {one.topic} mislead me." for one in known if one.logits.get(asked.kind.name, 0) < 0]
        said.append(rng.choice(lacking + misled or ["I made a slip."]))
        return " ".join((*said, rng.choice(BAD)))


@contextmanager
def simulated_server(
    world: World, *, habits: Habits | None = None, seed: int = 0, **server: Any
) -> Iterator[ModelServer]:
    """A server with a simulated model as its brain (``server.brain``); other options are those of ``ModelServer``."""
    with ModelServer(brain=SimulatedModel(world, habits, seed=seed), **server) as running:
        yield running


def main() -> None:
    parser = argparse.ArgumentParser(description="A model server whose success depends on its context.")
    parser.add_argument("--port", type=int, default=8201)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--null", action="store_true", help="a world in which no advice has any effect")
    parser.add_argument("--clean", action="store_true", help="without bad habits")
    parser.add_argument("--rows", type=int, default=0, help="print so many rows of a dataset first")
    given = parser.parse_args()
    world = World(given.seed, null=given.null)
    model = SimulatedModel(world, Habits() if given.clean else None)
    for row in world.rows(given.rows, given.seed):
        print(json.dumps(row))
    with ModelServer(brain=model, port=given.port, latency_s=given.latency) as server:
        print(server.base_url, model.habits, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(dict(model.calls), dict(model.formed))


if __name__ == "__main__":
    main()
