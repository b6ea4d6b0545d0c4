"""The simulated model as a writer of prompts: what optimisers of prompts ask for in free text, by the reflector's
knowledge. A rewriting keeps what stood and adds a lesson or two; a new proposal lists several."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.support.simulated_habits import Habits
from tests.support.simulated_lessons import Author
from tests.support.simulated_prompt import Seen, read, texts_of
from tests.support.world import World

Messages = Sequence[Mapping[str, Any]]

ADDED: Final = (1, 2)  # lessons of a rewriting
PROPOSED: Final = (6, 12)  # of a new proposal
KEPT: Final = 0.97  # of the lines that stood
_REWRITES = re.compile(r"\b(?:write|propose|provide) (?:a |the )?(?:new|better|improved) instructions?\b", re.I)
_BLOCK = re.compile(r"```(?:\w*\n)?(.*?)```", re.S)
_MARKED = re.compile(r"^<<<[A-Z ]+ \w+>>>\n(.*?)\n<<<END", re.S | re.M)
_FIELDS = re.compile(r"corresponding output fields, starting with the field (.*?), and then ending with", re.S)
_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]")
_INSTRUCTION = re.compile(r"instruction", re.I)
_GIVEN = re.compile(r"\[\[ ## basic_instruction ## \]\]\n(.*?)\n\s*(?=\[\[ ##|Respond with)", re.S)
_REMARKS = re.compile(r"observ|summar|descri", re.I)


def fields_of(messages: Messages) -> list[str]:
    """The fields in which an answer is wanted, where a prompt names them as ``[[ ## field ## ]]``."""
    wanted = _FIELDS.search("\n".join(texts_of(messages)[-1:]))
    return _FIELD.findall(wanted[1]) if wanted else []


def filed(fields: Sequence[str], text: str) -> str:
    """An answer in such fields; the text is that of the last one."""
    parts = [f"[[ ## {name} ## ]]\n{text if name == fields[-1] else 'As the task says.'}" for name in fields]
    return "\n\n".join((*parts, "[[ ## completed ## ]]"))


def is_asked_to_write(messages: Messages) -> bool:
    """Whether a prompt or remarks about a task are wanted, and not the solution of one."""
    fields = fields_of(messages)
    if fields:
        return bool(_INSTRUCTION.search(fields[-1]) or _REMARKS.search(fields[-1]))
    return bool(_REWRITES.search("\n".join(texts_of(messages, "user")[-1:])))


def list_wanted(schema: Mapping[str, Any]) -> str:
    """The name of the field where a whole prompt is wanted as a list of texts; "" where none is."""
    fields = (schema.get("properties") or {}).items()
    return next((name for name, one in fields if _INSTRUCTION.search(name) and one.get("type") == "array"), "")


class Writer:
    """Answers one such request."""

    def __init__(self, world: World, habits: Habits, messages: Messages, rng: random.Random) -> None:
        self.messages, self.rng = messages, rng
        self.text = "\n".join(texts_of(messages, "user"))
        self.seen: Seen = read(world, messages)
        self.author = Author(world, habits, self.seen, rng)

    def answer(self) -> str:
        fields = fields_of(self.messages)
        if fields and not _INSTRUCTION.search(fields[-1]):
            return filed(fields, self._remark())
        if fields:
            given = _GIVEN.search(self.text)
            return filed(fields, self._extended(given[1] if given else "", PROPOSED))
        block = _BLOCK.search(self.text)
        return f"Here it is.\n```\n{self._extended(block[1] if block else '', ADDED)}\n```"

    def lines(self) -> list[str]:
        """A list of lessons in place of the one in the first block of the prompt."""
        block = _MARKED.search(self.text)
        stood = [one for one in (block[1] if block else "").splitlines() if one.startswith("When")]
        return [
            line.removeprefix("- ")
            for line in self._extended("\n".join(f"- {one}" for one in stood), ADDED).splitlines()
        ]

    def _extended(self, text: str, added: tuple[int, int]) -> str:
        """The old text, nearly all of it, and new lessons."""
        stood = text.strip().splitlines()
        lines = [line.strip() for line in stood if not line.startswith("- ") or self.rng.random() < KEPT]
        drafts = [self.author.draft().text for _ in range(self.rng.randint(*added))]
        return "\n".join((*lines, *(f"- {' '.join(one.split())}" for one in drafts)))

    def _remark(self) -> str:
        about = sorted({one.kind.noun for one in self.seen.asked})
        felt = self.seen.felt[:1] or ["Each asks for one short answer."]
        return f"The tasks are of {len(about) or 'several'} kinds. {felt[0]}"
