"""Bodies of refusals, read in each form that services write: the words, the code and the parameter.

| form                                                         | written by                                        |
|--------------------------------------------------------------|---------------------------------------------------|
| ``{"error": {"message", "type", "code", "param"}}``          | OpenAI, Azure, Anthropic, DeepSeek, Groq, vLLM    |
| the same in a list of one                                    | Google                                            |
| ``{"error": {"message", "metadata": {"raw": "{…}"}}}``       | OpenRouter, which quotes its provider             |
| ``{"error": "…"}``, ``{"error": "…", "code": "…"}``          | Ollama, text-generation-inference, xAI            |
| ``{"object": "error", "message": "…" or {"detail": […]}}``   | older vLLM, SGLang, Mistral                       |
| ``{"detail": [{"loc", "msg"}]}``, ``{"detail": "…"}``        | FastAPI, Mistral                                  |
| ``{"code", "message"}``, ``{"errors": […]}``, ``{"msg"}``    | SiliconFlow, DashScope, Cloudflare                |
| ``{"base_resp": {"status_msg"}}``, ``{"error_msg"}``         | MiniMax, Baidu                                    |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from budgets.llm.halves import clean

MOST_PARTS: Final = 8  # of a list of errors
MOST_DEPTH: Final = 6
WORDS: Final = (
    *("error", "errors", "message", "detail", "details", "msg", "error_msg", "error_message", "errorMessage"),
    *("status_msg", "base_resp", "fault", "faultstring", "error_description", "description", "reason", "title"),
)
CODES: Final = ("code", "error_code", "errorCode")
NAME: Final = re.compile(r"[A-Za-z_][\w.\-\[\]/]{0,99}")  # of a code or a parameter: no words of a prompt


@dataclass(frozen=True, slots=True)
class BodyError:
    """An error's body, read. ``kinds`` are its type, code and status in small letters and digits; ``own``: it is a
    model API's error object, whose word counts for what was billed."""

    message: str = ""
    code: str = ""
    param: str = ""
    kinds: tuple[str, ...] = ()
    own: bool = False


def read_error(value: Any) -> BodyError:
    """``value`` is the parsed body, of any shape. Raises nothing."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]  # Google's
    if isinstance(value, str | list):
        return BodyError(_words(value, 0))
    if not isinstance(value, Mapping):
        return BodyError()
    objects = list(_objects(value, 0))
    error = value.get("error", value)
    inner = error if isinstance(error, Mapping) else value
    kinds = _kinds(inner, "type", "code", "status") if inner is error else _kinds(value, "error_type", "code")
    message = _words(value, 0)
    wrapped = "error" in value or value.get("object") == "error"
    codes = (one[name] for one in objects for name in CODES if name in one)
    return BodyError(
        message,
        next(filter(None, map(_name, codes)), ""),
        next(filter(None, map(_param, objects)), ""),
        kinds,
        own=wrapped and bool(message or (kinds and isinstance(error, Mapping))),
    )


def _objects(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The error's object, and those within it and in texts that are JSON, the outermost first."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, str):
        value = _loaded(value)
    if isinstance(value, Mapping):
        yield value
        for name in (*WORDS, "innererror", "metadata", "raw"):
            if isinstance(inner := value.get(name), Mapping | list | str):
                yield from _objects(inner, depth + 1)
    elif isinstance(value, list):
        for part in value[:MOST_PARTS]:
            yield from _objects(part, depth + 1)


def _words(value: Any, depth: int) -> str:
    """The message of an error, at any depth."""
    if depth > MOST_DEPTH:
        return ""
    if isinstance(value, str):
        found = _loaded(value)
        return (_words(found, depth + 1) if found is not None else "") or clean(value).strip()
    if isinstance(value, list):
        parts = (_words(part, depth + 1) for part in value[:MOST_PARTS])
        return "; ".join(dict.fromkeys(filter(None, parts)))
    if not isinstance(value, Mapping):
        return ""
    said = next(filter(None, (_words(value.get(name), depth + 1) for name in WORDS)), "")
    metadata = value.get("metadata")
    quoted = _words(metadata.get("raw"), depth + 1) if isinstance(metadata, Mapping) else ""
    if place := _place(value.get("loc")):
        said = f"{place}: {said}"
    return f"{said}: {quoted}" if said and quoted and quoted not in said else said or quoted


def _loaded(text: str) -> Any:
    """The object or list that a text is; None for words."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _param(error: Mapping[str, Any]) -> str:
    given = error.get("param") or error.get("parameter")
    return _name(given) or (_place(error.get("loc")) if "msg" in error else "")


def _place(loc: Any) -> str:
    """FastAPI's place of a field, without the body."""
    if not isinstance(loc, list):
        return ""
    return _name(".".join(str(part) for part in loc if part != "body" and isinstance(part, str | int)))


def _name(value: Any) -> str:
    return value if isinstance(value, str) and NAME.fullmatch(value) else ""


def _kinds(error: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    texts = (error.get(name) for name in names)
    return tuple("".join(filter(str.isalnum, text)).lower() for text in texts if isinstance(text, str))
