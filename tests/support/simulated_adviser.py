"""A reflector that knows what helps: what a simulated one finds by itself differs from run to run."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from tests.support.simulated_habits import Habits
from tests.support.simulated_model import Body, SimulatedModel
from tests.support.simulated_prompt import schema_of
from tests.support.world import Advice, World


class Adviser(SimulatedModel):
    """Drafts this advice in turn, three lessons at a time, and asks for each draft that it is shown to be added."""

    def __init__(self, world: World, advice: Sequence[Advice]) -> None:
        super().__init__(world, Habits())
        rng = random.Random(1)
        self.texts = [world.lesson(one, world.kinds[0], rng) for one in advice]
        self.drafted = 0

    def reply(self, body: Body) -> str:
        response = (schema_of(body) or {}).get("properties", {})
        if "lessons" in response:
            drafts = [self.texts[(self.drafted + at) % len(self.texts)] for at in range(min(3, len(self.texts)))]
            self.drafted += 3
            return json.dumps({"lessons": [{"text": text, "why": "it helps"} for text in drafts]})
        if "operations" in response:
            shown = " ".join(str(one["content"]) for one in body["messages"])
            adds = [{"op": "ADD", "text": text, "reason": "it helps"} for text in self.texts if text in shown]
            return json.dumps({"operations": adds})
        return super().reply(body)
