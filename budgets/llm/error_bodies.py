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
| ``{"error": "Forbidden", "message": "…"}``                   | Spring, NestJS: both are said                     |
| ``{"title", "errors": {"field": ["…"]}}``                    | ASP.NET, Django                                   |
| ``{"Message"}``, ``{"Error": {"Code", "Message"}}``          | AWS, Volcengine: names in any case                |
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
# Names of fields in small letters, without underscores.
WORDS: Final = (
    *("error", "errors", "message", "detail", "details", "msg", "errormsg", "errormessage", "errordescription"),
    *("statusmsg", "baseresp", "responsemetadata", "fault", "faultstring", "description", "reason", "title"),
)
WITHIN: Final = (*WORDS, "innererror", "metadata", "raw")
BESIDE: Final = ("message", "detail", "msg", "errordescription")  # more than the name of an error
CODES: Final = ("code", "errorcode")
DELAY: Final = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
NAME: Final = re.compile(r"[A-Za-z_][\w.\-\[\]/]{0,99}")  # of a code or a parameter: no words of a prompt


@dataclass(frozen=True, slots=True)
class BodyError:
    """An error's body, read. ``kinds`` are its type, code and status in small letters and digits; ``own``: it is a
    model API's error object, whose word counts for what was billed; ``retry_after`` is in seconds (Google has no header
    for it)."""

    message: str = ""
    code: str = ""
    param: str = ""
    kinds: tuple[str, ...] = ()
    own: bool = False
    retry_after: float | None = None


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
    codes = (one[name] for one in map(_plain, objects) for name in CODES if name in one)
    return BodyError(
        message,
        next(filter(None, map(_name, codes)), ""),
        next(filter(None, map(_param, objects)), ""),
        kinds,
        own=wrapped and bool(message or (kinds and isinstance(error, Mapping))),
        retry_after=next((wait for one in objects if (wait := _delay(one)) is not None), None),
    )


def _objects(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The error's object, and those within it and in texts that are JSON, the outermost first."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, str):
        value = _loaded(value)
    if isinstance(value, Mapping):
        yield value
        plain = _plain(value)
        for name in WITHIN:
            if isinstance(inner := plain.get(name), Mapping | list | str):
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
    plain = _plain(value)
    said = next(filter(None, (_words(plain.get(name), depth + 1) for name in WORDS)), "")
    if isinstance(plain.get("error"), str):
        more = next(filter(None, (_words(plain.get(name), depth + 1) for name in BESIDE)), "")
        said = f"{said}: {more}" if more and more not in said else said
    if fields := _of_fields(plain.get("errors"), depth + 1):
        said = f"{said} {fields}".strip()
    metadata = value.get("metadata")
    quoted = _words(metadata.get("raw"), depth + 1) if isinstance(metadata, Mapping) else ""
    if place := _place(value.get("loc")):
        said = f"{place}: {said}"
    return f"{said}: {quoted}" if said and quoted and quoted not in said else said or quoted


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields by their names in small letters, without underscores."""
    return {name.replace("_", "").lower(): one for name, one in reversed(list(value.items()))}


def _of_fields(value: Any, depth: int) -> str:
    """The words of an object of lists by the names of fields."""
    if not isinstance(value, Mapping) or not all(isinstance(one, list) for one in value.values()):
        return ""
    parts = ((_name(name), _words(one, depth)) for name, one in list(value.items())[:MOST_PARTS])
    return "; ".join(f"{name}: {words}" if name else words for name, words in parts if words)


def _loaded(text: str) -> Any:
    """The object or list that a text is; None for words."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _delay(error: Mapping[str, Any]) -> float | None:
    """Google's RetryInfo, such as "34s"."""
    given = error.get("retryDelay")
    found = DELAY.fullmatch(given) if isinstance(given, str) else None
    return None if found is None else float(found[1])


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
    return tuple(in_small(text) for text in texts if isinstance(text, str))


def in_small(text: str) -> str:
    """A name in small letters and digits."""
    return "".join(filter(str.isalnum, text)).lower()
