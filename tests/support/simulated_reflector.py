"""The simulated model as a reflector: it fills any JSON schema that it is given with lessons, summaries and opinions.

It goes by the types of the schema and by what the names and descriptions in it sound like.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tests.support.simulated_habits import Habits
from tests.support.simulated_lessons import OPERATIONS, OPINIONS, Author, Draft, op_of, opinion_named
from tests.support.simulated_prompt import ID_NAME, Schema, Seen, is_text
from tests.support.world import World
from tests.support.world_words import spun

_LISTING = re.compile(
    r"lesson|insight|experience|advice|rule|operation|\bops?$|edit|change|delta|updat|propos|add|item", re.I
)
_REASON = re.compile(
    r"reason|rational|why|because|justif|expla|evidence|analys|diagnos|cause|differ|compar|observ|critique|thought"
    r"|mistake|symptom|feedback",
    re.I,
)
_SUMMARY = re.compile(r"summar|story|happened|outline|narrat|trajector|synops|attempt|overview", re.I)
_WHEN = re.compile(r"^(?:when|situation|condition|trigger|context|applies|scope)", re.I)
_DO = re.compile(r"^(?:do|then|action_text|imperative|what_to_do)$", re.I)
_TITLE = re.compile(r"^(?:name|title|headline|label|topic)$", re.I)
_OPERATION = re.compile(r"^(?:op|operation|action|type|kind|decision|verb|change)$", re.I)
_CERTAIN = re.compile(r"confiden|probab|certain|likel", re.I)
_REMOVAL = re.compile(r"delet|remov|drop|retire", re.I)
_INDEX = re.compile(r"attempt|index|number|rollout|trajector|sample", re.I)


class Reflector:
    """Answers one request. ``seen`` is what is in its prompt."""

    def __init__(self, world: World, habits: Habits, seen: Seen, rng: random.Random) -> None:
        self.seen, self.rng = seen, rng
        self.author = Author(world, habits, seen, rng)
        self._root: Schema = {}

    def answer(self, schema: Schema) -> Any:
        self._root = schema
        return self._fill(schema, "", self.author.draft())

    def _allowed(self, schema: Schema) -> list[str]:
        """The operations that entries of this schema may have."""
        values = {op for value in _enums(self._resolved(schema), self._resolved) if (op := op_of(value))}
        return [name for name in OPERATIONS if name in values] or ["add"]

    def _resolved(self, schema: Any) -> Schema:
        """The schema itself: references followed, a single ``allOf`` merged."""
        for _ in range(20):
            if not isinstance(schema, Mapping):
                return {}
            if isinstance(ref := schema.get("$ref"), str):
                target: Any = self._root
                for part in ref.removeprefix("#").strip("/").split("/") if ref != "#" else ():
                    target = target.get(part, {}) if isinstance(target, Mapping) else {}
                schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}}
            elif parts := schema.get("allOf"):
                merged: dict[str, Any] = {name: value for name, value in schema.items() if name != "allOf"}
                for part in parts:
                    merged |= self._resolved(part)
                schema = merged
            else:
                break
        return schema

    def _fill(self, schema: Any, name: str, draft: Draft) -> Any:
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return self._choice(list(options), name, schema, draft)
        if branches := schema.get("anyOf") or schema.get("oneOf"):
            return self._fill(self._branch([self._resolved(one) for one in branches], name, draft), name, draft)
        kind = schema.get("type") or _implied(schema)
        if isinstance(kind, list):
            return self._fill(self._branch([{**schema, "type": one} for one in kind], name, draft), name, draft)
        if kind == "boolean":
            return self._boolean(name, draft)
        if kind in {"number", "integer"}:
            return self._number(schema, name, draft)
        fill: Any = {"object": self._object, "array": self._array, "string": self._string}.get(kind)
        return fill(schema, name, draft) if fill else None

    def _branch(self, branches: list[Schema], name: str, draft: Draft) -> Schema:
        """One of several forms: null where there is nothing to say, the form for the operation at hand."""
        null = [one for one in branches if one.get("type") == "null"]
        others = [one for one in branches if one.get("type") != "null"]
        if null and (not others or not self._has_something(name, draft)):
            return null[0]
        fitting = [one for one in others if draft.op in self._allowed(one)]
        return self.rng.choice(fitting or others)

    def _has_something(self, name: str, draft: Draft) -> bool:
        if ID_NAME.search(name):
            return bool(draft.ids)
        if is_text(name):
            return draft.op not in {"delete", "keep"}
        return self.rng.random() < 0.75

    def _choice(self, options: list[Any], name: str, schema: Schema, draft: Draft) -> Any:
        if fitting := [one for one in options if op_of(one) == draft.op]:
            return fitting[0]
        if len(rated := {effect: one for effect in OPINIONS for one in options if opinion_named(one) == effect}) >= 2:
            return rated.get(self.author.opinion(draft), options[-1])
        if ID_NAME.search(name) and (own := [one for one in options if one in draft.ids]):
            return own[0]
        return self.rng.choice(options)

    def _object(self, schema: Schema, name: str, draft: Draft) -> dict[str, Any]:
        fields, required = schema.get("properties") or {}, set(schema.get("required") or ())
        if not fields and isinstance(extra := schema.get("additionalProperties"), Mapping):
            rated = bool(_enums(extra, self._resolved))  # opinions are of all items, changes of some
            chosen = [key for key in self.seen.items if rated or self.rng.random() < 0.4]
            return {key: self._fill(extra, name, self.author.about([key], "keep")) for key in chosen}
        return {
            key: self._fill(inner, key, draft)
            for key, inner in fields.items()
            if key in required or self.rng.random() < 0.8
        }

    def _array(self, schema: Schema, name: str, draft: Draft) -> list[Any]:
        inner = self._resolved(schema.get("items") or {})
        least, most = int(schema.get("minItems") or 0), int(schema.get("maxItems") or 50)
        entries = self._entries(inner, name, draft, most)[:most]
        while len(entries) < least:
            entries.append(self.author.draft())
        return [self._fill(inner, name.removesuffix("s"), one) for one in entries]

    def _entries(self, inner: Schema, name: str, draft: Draft, most: int) -> list[Draft]:
        """The subjects of a list's entries."""
        fields = dict(inner.get("properties") or {})
        branches = [self._resolved(one) for one in inner.get("anyOf") or inner.get("oneOf") or ()]
        for one in branches:
            fields |= one.get("properties") or {}
        about_items = any(ID_NAME.search(key) for key in fields)
        rated = any(opinion_named(value) for value in _enums(inner, self._resolved)) or opinion_named(name)
        if not fields and inner.get("type", "string") == "string" and not branches:
            return self._words(name, draft, most)
        if about_items and rated and not any(is_text(key) for key in fields):
            return [self.author.about([key], "keep") for key in self.seen.items][:most]
        of_attempts: object = _SUMMARY.search(name) or any(_INDEX.search(key) for key in fields)
        if of_attempts and not any(is_text(key) for key in fields if not _SUMMARY.search(key)):
            return [Draft(attempt=one) for one in self.seen.attempts or ("1",)]
        lessons = _LISTING.search(name) or any(is_text(key) or _DO.search(key) for key in fields)
        return self.author.drafts(self._allowed(inner), most) if lessons else [self.author.draft()]

    def _words(self, name: str, draft: Draft, most: int) -> list[Draft]:
        """Entries of a list of texts: ids, lessons or remarks."""
        if rated := opinion_named(name):
            items = [self.author.about([key], "id") for key in self.seen.items]
            return [one for one in items if self.author.opinion(one) == rated]
        if _REMOVAL.search(name) or ID_NAME.search(name):
            some = self.rng.sample(list(self.seen.items), 1) if self.seen.items and self.rng.random() < 0.25 else []
            return [Draft("id", ids=[one]) for one in draft.ids or some]
        if _LISTING.search(name) or is_text(name):
            return self.author.drafts(["add"], most)
        return [Draft(attempt=one) for one in self.seen.attempts if _SUMMARY.search(name)] or [draft]

    def _string(self, schema: Schema, name: str, draft: Draft) -> str:
        text = self._text(name, str(schema.get("description") or ""), draft)
        if (most := schema.get("maxLength")) is not None and len(text) > most:
            text = text[:most].rpartition(" ")[0] or text[:most]
        return text.ljust(int(schema.get("minLength") or 0), ".")

    def _text(self, name: str, described: str, draft: Draft) -> str:
        """A text by what the field is called, or else by how it is described."""
        if _OPERATION.search(name) and (words := [w for w in re.findall(r"\b[A-Za-z_]+\b", described) if op_of(w)]):
            return next((word for word in words if op_of(word) == draft.op), words[0])
        if draft.op == "id" or ID_NAME.search(name) or _REMOVAL.search(name):
            return draft.ids[0] if draft.ids else ""
        for pattern, text in (
            (_WHEN, draft.when or "the task calls for it"),
            (_DO, draft.do or draft.text),
            (_TITLE, f"On {draft.advice.topic}" if draft.advice else "On the task"),
        ):
            if pattern.search(name):
                return text
        for hint in (name, described):  # the name says more than the description
            if _REASON.search(hint):
                return self._reason(draft)
            if _SUMMARY.search(hint):
                return self._summary(draft)
            if is_text(hint) or _LISTING.search(hint):
                return draft.text or self.author.draft().text
        return self._reason(draft)

    def _summary(self, draft: Draft) -> str:
        noun = spun(self.rng.choice(self.seen.asked).kind.noun, self.rng) if self.seen.asked else "the task"
        said = self.rng.choice(self.seen.felt) if self.seen.felt else "It went straight for an answer."
        which = f"Attempt {draft.attempt}" if draft.attempt else self.rng.choice(("The attempt", "The agent"))
        return f"{which} was about {noun} and said: {said}"

    def _reason(self, draft: Draft) -> str:
        felt = self.rng.choice(self.seen.felt) if self.seen.felt else "They differ in how much care was taken."
        return f"{self.rng.choice(('The worse attempts tell it', 'As one attempt put it', 'What stands out'))}: {felt}"

    def _number(self, schema: Schema, name: str, draft: Draft) -> float | int:
        whole = schema.get("type") == "integer"
        if _INDEX.search(name) and draft.attempt.isdigit():
            return int(draft.attempt)
        low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
        high = schema.get("exclusiveMaximum") if high is None else high
        if whole:
            least = int(0 if low is None else low) + ("exclusiveMinimum" in schema)
            return self.rng.randint(least, least + 3 if high is None else max(least, int(high)))
        if _CERTAIN.search(name) and (high is None or high >= 1):
            return round(self.rng.uniform(0.5, 0.95), 2) * (1 if high is None or high <= 1 else high)
        bottom, top = 0.0 if low is None else low, 1.0 if high is None else high
        return round(bottom + (top - bottom) * self.rng.uniform(0.05, 0.95), 3)

    def _boolean(self, name: str, draft: Draft) -> bool:
        rated = opinion_named(name)
        return self.author.opinion(draft) == rated if rated else self.rng.random() < 0.7


def _enums(schema: Schema, resolved: Any, depth: int = 0) -> list[Any]:
    """The values that enumerations within a schema allow."""
    if depth > 4:
        return []
    own = [*(schema.get("enum") or ()), *([schema["const"]] if "const" in schema else ())]
    inner = [*(schema.get("properties") or {}).values(), *(schema.get("anyOf") or schema.get("oneOf") or ())]
    return own + [value for one in inner for value in _enums(resolved(one), resolved, depth + 1)]


def _implied(schema: Schema) -> str:
    """The type of a schema that does not say it."""
    return "object" if "properties" in schema else "array" if "items" in schema else "string"
