"""Random answers, and the streams in which the servers of several providers write them.

The forms are those of public references and of reports: which server repeats names, numbers all calls 0, writes the
arguments as an object, sends contents as lists, or puts its usage elsewhere.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

WORDS = ("Käse ", "two", " 🧀", "\n", "data: x", "[DONE]", " 日本", '"', "\\", "{", "a" * 30)


@dataclass
class Truth:
    """The words of a model, before a server wrote them."""

    text: str
    thoughts: str = ""
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)  # id, name, arguments
    usage: tuple[int, int] = (20, 7)


def truth(rng: random.Random) -> Truth:
    text = "".join(rng.choices(WORDS, k=rng.randint(1, 6)))
    calls = [
        (f"id{n}", rng.choice(("weather", "time")), {"city": rng.choice(WORDS), "n": rng.randint(0, 9)})
        for n in range(rng.choice((0, 0, 1, 2, 3)))
    ]
    thoughts = "".join(rng.choices(WORDS, k=3)) if rng.random() < 0.5 else ""
    return Truth(text, thoughts, calls, (rng.randint(1, 99), rng.randint(1, 99)))


def _pieces(rng: random.Random, text: str) -> list[str]:
    """Cut between any two units of UTF-16, as servers in JavaScript and Java do: an emoji may be cut in two."""
    units = text.encode("utf-16-le")
    at = sorted({0, len(units), *(2 * rng.randint(0, len(units) // 2) for _ in range(2))})
    return [units[a:b].decode("utf-16-le", "surrogatepass") for a, b in itertools.pairwise(at)]


def _chunk(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    given = {"index": 0, "delta": delta, "finish_reason": None, **choice}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [given]}


def _usage(said: Truth) -> dict[str, int]:
    prompt, output = said.usage
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def _reason(said: Truth) -> str:
    return "tool_calls" if said.calls else "stop"


def _texts(rng: random.Random, said: Truth, name: str = "content") -> Iterator[dict[str, Any]]:
    for piece in _pieces(rng, said.text if name == "content" else said.thoughts):
        yield _chunk({name: piece})


def _standard_calls(rng: random.Random, said: Truth) -> Iterator[dict[str, Any]]:
    for at, (identity, name, arguments) in enumerate(said.calls):
        first = {"index": at, "id": identity, "type": "function", "function": {"name": name, "arguments": ""}}
        yield _chunk({"tool_calls": [first]})
        for piece in _pieces(rng, json.dumps(arguments)):
            yield _chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})


def _end(said: Truth, **more: Any) -> Iterator[dict[str, Any]]:
    yield _chunk({}, finish_reason=_reason(said))
    yield {"id": "c1", "model": "m", "choices": [], "usage": _usage(said), **more}


def openai(rng: random.Random, said: Truth) -> Iterator[Any]:
    yield _chunk({"role": "assistant", "content": ""})
    yield from _texts(rng, said)
    yield from _standard_calls(rng, said)
    yield from _end(said)


def azure(rng: random.Random, said: Truth) -> Iterator[Any]:
    yield {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    yield from openai(rng, said)


def deepseek(rng: random.Random, said: Truth) -> Iterator[Any]:
    yield from _texts(rng, said, "reasoning_content")
    yield from _texts(rng, said)
    yield from _standard_calls(rng, said)
    yield _chunk({"content": "", "reasoning_content": None}, finish_reason=_reason(said)) | {"usage": _usage(said)}


def gemini(rng: random.Random, said: Truth) -> Iterator[Any]:
    """All calls with index 0, each whole, with a signature."""
    yield from _texts(rng, said)
    for identity, name, arguments in said.calls:
        function = {"name": name, "arguments": json.dumps(arguments)}
        signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
        yield _chunk({"tool_calls": [{"index": 0, "id": identity, "type": "function", "function": function, **signed}]})
    yield from _end(said)


def ollama(rng: random.Random, said: Truth) -> Iterator[Any]:
    """Neither index nor id."""
    yield from _texts(rng, said)
    for _, name, arguments in said.calls:
        yield _chunk({"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]})
    yield from _end(said)


def llama_cpp(rng: random.Random, said: Truth) -> Iterator[Any]:
    """Arguments as objects."""
    yield from _texts(rng, said)
    for at, (identity, name, arguments) in enumerate(said.calls):
        yield _chunk(
            {"tool_calls": [{"index": at, "id": identity, "function": {"name": name, "arguments": arguments}}]}
        )
    yield from _end(said, timings={"prompt_n": 1})


def sglang(rng: random.Random, said: Truth) -> Iterator[Any]:
    """An empty reason in each chunk, arguments null at first, the name in each chunk."""
    for chunk in openai(rng, said):
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or rng.choice(("", "null"))
            for call in choice["delta"].get("tool_calls", ()):
                call["function"]["name"] = said.calls[call["index"]][1]
                call["function"]["arguments"] = call["function"]["arguments"] or None
        yield chunk


def mistral(rng: random.Random, said: Truth) -> Iterator[Any]:
    """Thoughts and text as lists."""
    for piece in _pieces(rng, said.thoughts):
        yield _chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]})
    for piece in _pieces(rng, said.text):
        yield _chunk({"content": [{"type": "text", "text": piece}] if rng.random() < 0.5 else piece})
    for at, (identity, name, arguments) in enumerate(said.calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield _chunk({"tool_calls": [{"index": at, "id": identity, "function": function}]})
    yield _chunk({"content": ""}, finish_reason=_reason(said)) | {"usage": _usage(said)}


def groq(rng: random.Random, said: Truth) -> Iterator[Any]:
    yield _chunk({"role": "assistant", "content": ""}) | {"x_groq": {"id": "req"}}
    yield from _texts(rng, said, "reasoning")
    yield from _texts(rng, said)
    yield from _standard_calls(rng, said)
    yield _chunk({}, finish_reason=_reason(said)) | {"x_groq": {"id": "req", "usage": _usage(said)}}


def kimi(rng: random.Random, said: Truth) -> Iterator[Any]:
    """Usage within the choice."""
    yield from _texts(rng, said, "reasoning_content")
    yield from _texts(rng, said)
    yield from _standard_calls(rng, said)
    yield _chunk({}, finish_reason=_reason(said), usage=_usage(said))


def openrouter(rng: random.Random, said: Truth) -> Iterator[Any]:
    for piece in _pieces(rng, said.thoughts):
        detail = {"type": "reasoning.text", "text": piece, "index": 0, "format": "anthropic-claude-v1"}
        yield _chunk({"content": "", "reasoning": piece, "reasoning_details": [detail]})
    yield from _texts(rng, said)
    yield from _standard_calls(rng, said)
    yield from _end(said)


def twice_encoded(rng: random.Random, said: Truth) -> Iterator[Any]:
    yield from _texts(rng, said)
    for at, (identity, name, arguments) in enumerate(said.calls):
        for n, piece in enumerate(_pieces(rng, json.dumps(json.dumps(arguments)))):
            first = {"id": identity, "type": "function"} if n == 0 else {}
            function = {"name": name, "arguments": piece} if n == 0 else {"arguments": piece}
            yield _chunk({"tool_calls": [{"index": at, **first, "function": function}]})
    yield from _end(said)


def one_message(rng: random.Random, said: Truth) -> Iterator[Any]:
    """A server that sends its whole message as one chunk, with all calls and no index."""
    calls = [{"id": i, "function": {"name": name, "arguments": given}} for i, name, given in said.calls]
    message = {"role": "assistant", "content": said.text, "tool_calls": calls}
    yield {"id": "c1", "model": "m", "choices": [{"message": message, "finish_reason": _reason(said)}]}
    yield {"choices": [], "usage": _usage(said)}


DIALECTS: dict[str, Callable[[random.Random, Truth], Iterator[Any]]] = {
    one.__name__: one
    for one in (
        *(openai, azure, deepseek, gemini, ollama, llama_cpp, sglang, mistral, groq, kimi, openrouter),
        *(twice_encoded, one_message),
    )
}


THINKING = frozenset({"deepseek", "mistral", "groq", "kimi", "openrouter"})  # dialects that show the thoughts


def written(rng: random.Random, chunks: Iterator[Any]) -> bytes:
    """The events as bytes, in one of the ways that the standard allows or that servers have."""
    line = rng.choice(("\n", "\n", "\r\n", "\r"))
    ascii_only, space = rng.random() < 0.5, rng.choice((" ", ""))
    found = [rng.choice(("", "\ufeff"))]
    for chunk in chunks:
        if rng.random() < 0.2:
            found.append(f": PROCESSING{line}{line}")
        if rng.random() < 0.2:
            found.append(f"event: message{line}id: 7{line}retry: 10{line}")
        data = json.dumps(chunk, ensure_ascii=ascii_only)
        if rng.random() < 0.2:  # an event of several lines
            data = json.dumps(chunk, ensure_ascii=ascii_only, indent=1).replace("\n", f"{line}data:{space}")
        if re.search("[\ud800-\udfff]", data):  # half of an emoji has no other form than its escape
            data = json.dumps(chunk)
        found.append(f"data:{space}{data}{line}{line}")
    found.append(f"data:{space}[DONE]{line}{line}")
    return "".join(found).encode()
