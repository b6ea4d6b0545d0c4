"""The simulated model writes prompts for those who ask in free text, by the knowledge of its reflector."""

from __future__ import annotations

import random
import re

from tests.performance.rivals.table import table
from tests.support.simulated_habits import Habits
from tests.support.simulated_model import SimulatedModel
from tests.support.world_varied import VariedWorld

REWRITE = """I provided an assistant with the following instructions to perform a task for me:
```
{prompt}
```
The following are examples of different task inputs, with the assistant's response and some feedback:
```
## Inputs
{query}
## Generated Outputs
I was not careful enough with the details.
```
Your task is to write a new instruction for the assistant. Provide the new instructions within ``` blocks."""
FIELDS = (
    "Respond with the corresponding output fields, starting with the field `[[ ## {field} ## ]]`, and then ending with "
    "the marker for `[[ ## completed ## ]]`."
)


def _asked(model: SimulatedModel, text: str, system: str = "You help.") -> str:
    return model.reply({"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]})


def test_a_rewriting_keeps_what_stood_and_adds_a_lesson_or_two() -> None:
    world = VariedWorld(6)
    model, query = SimulatedModel(world, Habits(sound=1.0, idle=0.0)), world.rows(1, 1)[0]["query"]
    lesson = world.lesson(world.helpful[0], world.kinds[0], random.Random(1))
    reply = _asked(model, REWRITE.format(prompt=f"Think.\n- {lesson}", query=query))
    (block,) = re.findall(r"```\n(.*?)\n```", reply, re.S)
    head, stood, *new = block.splitlines()
    assert (head, stood) == ("Think.", f"- {lesson}") and 1 <= len(new) <= 2
    assert all(world.advice_of(line) in world.helpful for line in new)
    assert model.calls == {"reflector": 1}


def test_a_proposal_in_fields_begins_with_the_given_instruction() -> None:
    world = VariedWorld(6)
    text = "[[ ## basic_instruction ## ]]\nThink.\n\n" + FIELDS.format(field="proposed_instruction")
    reply = _asked(SimulatedModel(world, Habits()), text)
    head, *lines = reply.removeprefix("[[ ## proposed_instruction ## ]]\n").split("\n\n[[")[0].splitlines()
    assert head == "Think." and 6 <= len(lines) <= 12 and reply.endswith("[[ ## completed ## ]]")


def test_an_agent_that_is_asked_in_fields_answers_in_them_and_heeds_the_instruction() -> None:
    world = VariedWorld(6)
    model, query = SimulatedModel(world, Habits()), world.rows(1, 1)[0]["query"]
    (asked,), advice = world.find(query), world.helpful[0]
    text = f"[[ ## question ## ]]\n{query}\n\n{FIELDS.format(field='answer')}"
    with model.truth() as noted:
        reply = _asked(model, text, world.lesson(advice, asked.kind, random.Random(1)))
    assert re.fullmatch(r"\[\[ ## answer ## \]\]\n.+\n\n\[\[ ## completed ## \]\]", reply)
    (chances,) = noted.values()
    assert abs(chances[0] - world.chance(asked, (advice,), 100)) < 0.01 and model.calls == {"agent": 1}


def test_the_table_compares_only_worlds_in_which_every_method_came_to_its_end() -> None:
    def world(seed: int, ours: float, theirs: float | None) -> dict[str, object]:
        figures = {"calls": 100, "ktokens": 9, "seconds": 1.0, "helpful": 1, "useless": 0, "harmful": 0}
        other = {"error": "it broke"} if theirs is None else {"success": theirs, **figures}
        methods = {f"AgentCore, {name}": {"success": ours, **figures} for name in ("all calls", "half")}
        methods |= {f"GEPA, {name}": other for name in ("all calls", "half")}
        return {"seed": seed, "wording": "named", "base": 0.3, "methods": methods}

    shown = table([world(1, 0.7, 0.6), world(2, 0.6, 0.65), world(3, 0.9, None)])
    assert "seed 3 is left out: GEPA, all calls: it broke" in shown and "all worlds: 2" in shown
    assert "AgentCore with all calls beside GEPA, all calls: +2.5 points, above in 1/2" in shown
