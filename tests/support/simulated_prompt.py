"""Parts that a simulated model reads from a prompt that wants JSON: the schema, items with ids, candidates, attempts.

It reads as a model does: by what things look like, not by what a particular system calls them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support.world import Asked, World

Schema = Mapping[str, Any]

MAX_OBJECTS: Final = 400  # places of a prompt that are tried as JSON
ID_NAME: Final = re.compile(r"(?:^|_)(?:ids?|ref|refs|targets?|key|handle)$", re.I)
_TEXT_NAME = re.compile(
    r"lesson|(?<!con)text|content|insight|advice|experience|rule|guideline|instruction|bullet", re.I
)
_DECODER: Final = json.JSONDecoder()
_BRACKETED = re.compile(r"^[\s>*\-•\d.)]*[\[(#]([A-Za-z0-9][\w.:-]{1,40})[\])]?[\s:|—-]+(?=\S)(.*)$")
_ATTRIBUTE = re.compile(r"""\bid\s*[=:]\s*["']?([\w.:-]{2,40})["']?[^\w]*(.*)$""")
_BARE = re.compile(r"^[\s>*\-•]*([a-z0-9]*\d[a-z0-9]*|[A-Z]{1,6}[-_]?\d+):\s+(\S.*)$")
_BULLET = re.compile(r"^[\s>*\-•]*(?:\d+[.)]\s+)?")
_HEADING = re.compile(
    r"candidate|proposed|proposal|new lesson|new experience|suggested|suggestion|to (?:be )?merge", re.I
)
_ATTEMPT = re.compile(r"\b(?:attempt|trajectory|rollout|try|sample)\s*[#:_-]?\s*(\d{1,3}|[A-H])\b", re.I)
_FELT = re.compile(r"\b(?:I|My) [^.\n\"\\]{8,120}\.")
_ASKS = re.compile(r"\b(?:in|as|with|valid|one|only) JSON\b|\bJSON (?:object|only)\b", re.I)
_SKETCH = re.compile(r"\{[^{}]*\"\w+\"\s*:[^{}]*\}")
_AGAIN = re.compile(
    r"(?:not|n't|no) (?:be )?(?:usable|used|valid|read|parsed|parse|a JSON|JSON|accepted|match)|unusable|invalid"
    r"|malformed|try again|once more|could not|cannot be",
    re.I,
)


@dataclass
class Seen:
    """The content of a prompt. ``items``: texts by id; ``candidates``: lessons under a heading that calls them new."""

    asked: tuple[Asked, ...] = ()
    items: dict[str, str] = field(default_factory=dict)
    candidates: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    felt: list[str] = field(default_factory=list)  # what the attempts say about themselves
    again: bool = False


def is_text(name: str) -> bool:
    """Whether a field of this name holds a lesson's text."""
    return bool(_TEXT_NAME.search(name)) and not ID_NAME.search(name)


def texts_of(messages: Sequence[Mapping[str, Any]], *roles: str) -> list[str]:
    """The texts of the messages, or of those with these roles; parts of a message are joined."""
    return [text_of(one) for one in messages if not roles or one.get("role") in roles]


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def schema_of(body: Mapping[str, Any]) -> Schema | None:
    """The schema that an answer has to follow: of ``response_format``, else the last one in the prompt, else one
    made from the last example in it. None where no JSON is asked for."""
    wanted = body.get("response_format") or {}
    given = (wanted.get("json_schema") or {}).get("schema")
    if isinstance(given, Mapping):
        return given
    texts = texts_of(body["messages"], "system", "developer", "user")
    for text in reversed(texts):
        if '"properties"' in text and (found := [s for one in objects_in(text) if (s := _schema_in(one))]):
            return found[-1]
    asks = wanted.get("type") in {"json_object", "json_schema"}
    for text in texts if asks else (texts[:1] + texts[-1:] if texts else ()):
        if asks or _ASKS.search(text):
            if examples := [one for one in objects_in(text) if one]:
                return _like(examples[-1])
            if sketches := _SKETCH.findall(text):
                return _sketched(sketches[-1])
    return {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]} if asks else None


def objects_in(text: str) -> Iterator[Any]:
    """The outermost JSON objects that are in a text."""
    return (value for _, value in _placed_objects(text))


def _placed_objects(text: str) -> Iterator[tuple[int, Any]]:
    """The same, each with its place."""
    at = tried = 0
    while tried < MAX_OBJECTS and (start := text.find("{", at)) >= 0:
        tried += 1
        try:
            value, at = _DECODER.raw_decode(text, start)
            yield start, value
        except (ValueError, RecursionError):
            at = start + 1


def read(world: World, messages: Sequence[Mapping[str, Any]]) -> Seen:
    """All that is of use in a prompt: in what the user says, for the system's part says how to go about it."""
    text = "\n".join(texts_of(messages, "user") or texts_of(messages))
    seen = Seen(asked=world.find(text), again=_again(messages))
    fresh = False
    for line in text.splitlines():
        if _is_heading(line):
            fresh = bool(_HEADING.search(line)) or (fresh and not _other_heading(line))
        _read_line(world, line, seen, fresh=fresh)
    for start, value in _placed_objects(text):
        if not _schema_in(value):
            _read_value(world, value, seen, fresh=bool(_HEADING.search(text[max(0, start - 60) : start])))
    seen.candidates = list(dict.fromkeys(seen.candidates))
    seen.attempts = list(dict.fromkeys(_ATTEMPT.findall(text)))
    seen.felt = [one for one in dict.fromkeys(_FELT.findall(text)) if not world.advice_in(one)]
    return seen


def _read_line(world: World, line: str, seen: Seen, *, fresh: bool) -> None:
    if len(line) > 1_000 or line.lstrip().startswith(("{", '"', "[{", '["')):
        return
    hit = _BRACKETED.match(line) or _BARE.match(line) or _ATTRIBUTE.search(line)
    text = _bare(hit[2] if hit else line)
    lesson = _is_lesson(world, text)
    other = hit and any(map(str.isdigit, hit[1])) and len(text.split()) >= 3 and not _ATTEMPT.search(line[:40])
    if hit and (lesson or other):
        seen.items[hit[1]] = text
    if lesson and (fresh or not (hit or seen.asked)):
        seen.candidates.append(text)


def _read_value(world: World, value: Any, seen: Seen, *, fresh: bool) -> None:
    """Items and candidates of a JSON value: objects with a text, and perhaps an id."""
    if isinstance(value, list):
        for one in value:
            _read_value(world, one, seen, fresh=fresh)
    if isinstance(value, str) and fresh and _is_lesson(world, value):
        seen.candidates.append(value)
    if not isinstance(value, Mapping):
        return
    ids = [one for name, one in value.items() if ID_NAME.search(name) and isinstance(one, str | int)]
    texts = [one for name, one in value.items() if is_text(name) and isinstance(one, str) and _is_lesson(world, one)]
    if texts and ids:
        seen.items[str(ids[0])] = texts[0]
    if texts and (fresh or not (ids or seen.asked)):
        seen.candidates.append(texts[0])
    for name, inner in value.items():
        if not isinstance(inner, str):
            _read_value(world, inner, seen, fresh=fresh or bool(_HEADING.search(name)))


def _bare(line: str) -> str:
    """A line without bullet, tags, and what is before its "When"."""
    text = re.sub(r"^<[^>]*>|</[^>]*>$", "", _BULLET.sub("", line).strip()).strip()
    return text[at:] if 0 <= (at := text.find("When ")) <= 80 else text


def _is_lesson(world: World, text: str) -> bool:
    return text.startswith("When ") or bool(world.advice_in(text))


def _is_heading(line: str) -> bool:
    text = line.strip()
    return 0 < len(text) <= 120 and (text.endswith((":", ">", "]")) or text.startswith(("#", "<", "==", "**")))


def _other_heading(line: str) -> bool:
    """Whether a heading ends the list before it: closing tags, and titles of something else."""
    text = line.strip()
    return text.startswith(("</", "#", "==", "<<<END")) or text.endswith(":")


def _again(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the prompt says that its last answer was of no use."""
    if any(one.get("role") == "assistant" for one in messages):
        return True
    return bool(_AGAIN.search(text_of(messages[-1])[-300:])) and len(messages) > 2


def _schema_in(value: Any) -> Schema | None:
    """A JSON schema of an object within a value: itself, or what is under a name in it."""
    if not isinstance(value, Mapping):
        return None
    if isinstance(value.get("properties"), Mapping) or "$ref" in value:
        return value
    return next((found for inner in value.values() if (found := _schema_in(inner))), None)


def _like(example: Any) -> Schema:
    """A schema of values like this one."""
    if isinstance(example, Mapping):
        return {
            "type": "object",
            "properties": {name: _like(one) for name, one in example.items()},
            "required": list(example),
        }
    if isinstance(example, list):
        return {"type": "array", "items": _like(example[0]) if example else {"type": "string"}}
    if isinstance(example, bool):
        return {"type": "boolean"}
    return {"type": "number"} if isinstance(example, int | float) else {"type": "string", "description": str(example)}


def _sketched(sketch: str) -> Schema:
    """A schema of an example that is no JSON, such as {"reason": "...", "score": a number from 0 to 10}."""
    fields = {}
    for name, value in re.findall(r'"(\w+)"\s*:\s*([^,}]*)', sketch):
        number = re.match(r"[^\"\[]*(?:number|integer|\d)", value)
        text = {"type": "string"}
        fields[name] = {"type": "array", "items": text} if value.startswith("[") else text
        if number:
            fields[name] = {"type": "number"}
    return {"type": "object", "properties": fields, "required": list(fields)}
