"""GEPA as its users call it (``gepa.optimize`` with its default adapter), in an environment of its own.

Reads a task as JSON from standard input, and writes the prompt that it ends with. Nothing of the project is imported.
"""

from __future__ import annotations

import http.client
import json
import sys
from typing import Any
from urllib.parse import urlsplit

import gepa


class Model:
    """The model server, one call at a time. ``calls`` counts those of all callers."""

    def __init__(self, base_url: str, name: str) -> None:
        self.url, self.name, self.calls = urlsplit(base_url), name, 0
        self._line = http.client.HTTPConnection(self.url.hostname or "", self.url.port)

    def answer(self, messages: list[dict[str, Any]], temperature: float, most: int) -> str:
        self.calls += 1
        body = {
            "model": self.name,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": most,
            "seed": self.calls,
        }
        self._line.request(
            "POST",
            f"{self.url.path}/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json", "Authorization": "Bearer sk-test"},
        )
        answer = json.loads(self._line.getresponse().read())
        return str(answer["choices"][0]["message"]["content"])


def main() -> None:
    task = json.load(sys.stdin)
    model = Model(task["base_url"], task["model"])

    def solve(messages: Any) -> str:
        return model.answer(list(messages), task["temperature"], 200)

    def reflect(prompt: Any) -> str:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        return model.answer(messages, 1.0, 16_384)

    found = gepa.optimize(
        seed_candidate={"instructions": task["prompt"]},
        trainset=_rows(task["train"]),
        valset=_rows(task["validation"]),
        task_lm=solve,
        reflection_lm=reflect,
        stop_callbacks=lambda _: model.calls >= task["calls"],
        logger=Quiet(),
        seed=task["seed"],
    )
    json.dump({"prompt": found.best_candidate["instructions"]}, sys.stdout)


def _rows(rows: list[dict[str, str]]) -> list[Any]:
    return [{"input": one["query"], "answer": one["answer"], "additional_context": {}} for one in rows]


class Quiet:
    def log(self, message: str) -> None:
        """Says nothing: standard output is for the result."""


if __name__ == "__main__":
    main()
