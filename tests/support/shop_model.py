"""A model that sorts the messages of the sample data: well where the message says its team, badly where a rule of the
shop decides, until a lesson in its prompt has that rule. Asked to reflect, it proposes the rules."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from typing import Any, Final

from tests.support.simulated_prompt import schema_of, texts_of
from training.data.sample import sample_rows

RULES: Final = {
    "legal": "When a message threatens with a lawyer, a court, the press or an authority, answer legal.",
    "accounts": "When a message comes from a company, an office or a school, answer accounts.",
    "customs": "When a parcel goes to another country, answer customs.",
    "finance": "When more than $50 are asked for, answer finance.",
}
UNTOLD: Final = {"legal": 0.3, "accounts": 0.25, "customs": 0.4, "finance": 0.4}
KNOWN: Final = 0.92
MESSAGE_AT: Final = 1  # of the parts of a query


class ShopModel:
    """The brain of a ``ModelServer``. ``when``: its rules begin with "When", as the reflector's prompt asks."""

    def __init__(self, *, when: bool = True) -> None:
        self.teams = {
            row["query"].split("\n\n")[MESSAGE_AT]: row["expected_outcome"]["answer"] for row in sample_rows()
        }
        self.when, self.asked = when, itertools.count()

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        return self.reply({"messages": messages})

    def reply(self, body: Mapping[str, Any]) -> str:
        text = "\n".join(texts_of(body["messages"]))
        rng = random.Random(f"{text}{body.get('seed', next(self.asked))}")
        if schema := schema_of(body):
            return json.dumps(self._reflected(schema.get("properties", {}), text))
        asked = texts_of(body["messages"], "user")[-1]
        team = self._team(asked)
        knows = UNTOLD.get(team, KNOWN)
        if team in RULES and RULES[team] in text:
            knows = KNOWN
        answered = team if rng.random() < knows else rng.choice(["desk", "dispatch", "warehouse"])
        return f"Answer: {answered}" if "Answer:" in text else answered

    def _reflected(self, wanted: Mapping[str, Any], text: str) -> dict[str, Any]:
        """The rule of the message's own team as a lesson, each draft as an addition, or a summary."""
        rules = {team: rule if self.when else rule.replace("When", "If", 1) for team, rule in RULES.items()}
        if "lessons" in wanted:
            rule = rules.get(self._team(text.partition("TASK")[2]))
            return {"lessons": [{"text": rule, "why": "The attempts differ in it."}] if rule else []}
        if "operations" in wanted:
            drafts = [rule for rule in rules.values() if rule in text.partition(">>>")[2]]
            return {"operations": [{"op": "ADD", "text": rule} for rule in drafts]}
        return {"summary": "It chose a team by the words of the message."}

    def _team(self, text: str) -> str:
        return next((team for message, team in self.teams.items() if message in text), "")
