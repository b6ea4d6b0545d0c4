"""The ``agentgym`` environment: tasks of an environment server, split by their numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from agentcore_site.outbound import AddressRefused, parsed
from experiences.rollouts.environments.agentgym.dialects import DIALECTS
from experiences.rollouts.environments.agentgym.episode import AgentGymServer, GymEpisode
from experiences.rollouts.environments.base import environments, split_of
from experiences.rollouts.options import Option, help_of, read_options
from experiences.rollouts.types import ActionSpec, Scenario

NOUN: Final = "environment agentgym"
MIN_SIZE: Final = 10
MAX_SIZE: Final = 1_000_000
MAX_INSTRUCTIONS: Final = 20_000
MAX_KEEP: Final = 200
_BRACKET = re.compile(r"(?<!\\)(?:\\\\)*\]|(?<!\\)(?:\\\\)*\\$")  # one that would end the class, or a lonely escape


@dataclass(frozen=True)
class AgentGymEnvironment:
    """Tasks 0 … ``size`` - 1 of a server, each attempt a session of its own. Offers no actions: it is talked to."""

    server: AgentGymServer
    size: int
    name: str = "agentgym"
    actions: tuple[ActionSpec, ...] = ()
    lines: tuple[str, ...] = ()

    def scenarios(self, split: str, n: int, seed: int) -> Sequence[Scenario]:
        """``n`` tasks of a split, with indices from 0. Raises ValueError as ``split_of`` does."""
        chosen = split_of(self.size, split, n, seed, ", or raise size if the server has more tasks")
        return [self._scenario(index, task, split) for index, task in enumerate(chosen)]

    def start(self, scenario: Scenario, rng: np.random.Generator) -> GymEpisode:
        """One attempt; rollouts of one scenario are sessions that are reset to one task. ``rng`` is not used: what
        the world does is for the server to decide."""
        return GymEpisode(self.server, int(scenario.expected["data_idx"]))

    def _scenario(self, index: int, task: int, split: str) -> Scenario:
        query = f"Task {task} of the environment server {_sign(self.server.base_url)}"
        return Scenario(index, query, {"data_idx": task}, {"split": split, "data_idx": task})


def _sign(base_url: str) -> str:
    """Eight letters that distinguish servers. An address would be redacted, and eight digits may look like a phone
    number."""
    return "".join(chr(ord("a") + byte % 26) for byte in hashlib.sha256(base_url.encode()).digest()[:8])


OPTIONS: Final[Mapping[str, Option]] = {
    "base_url": Option("The server's address, e.g. http://textcraft:36001. Required."),
    "size": Option(
        "How many tasks the server has: numbers 0 to size - 1 are used, half of them to train, a tenth to "
        f"select, the rest held out. At least {MIN_SIZE}. Required."
    ),
    "dialect": Option(
        "auto (default: by the server's answer), A (id, data_idx: TextCraft, BabyAI, SciWorld) or B "
        "(env_idx: WebShop, SQLGym, tools).",
        choices=("auto", *DIALECTS),
    ),
    "reset_key": Option("The field by which the server's reset takes a task; found out by default.", ""),
    "success_reward": Option(
        "The summed reward from which an episode is a success, and over; 1 by default.", 1.0, 1e-6, 1e9
    ),
    "action_format": Option(
        'raw (default: what the agent writes is the action) or action_line: the text after its last "Action:".',
        choices=("raw", "action_line"),
    ),
    "action_keep": Option(
        "The characters that an action may hold, as between the brackets of a regular expression: "
        "others are removed, of several lines the first is sent, and white space is folded. Letters, digits, comma and "
        'space ("A-Za-z0-9, ") is what AgentGym\'s own client of TextCraft sends. Empty by default: sent as it is.',
        "",
    ),
    "one_action": Option(
        'true: a message with several "Action:" is answered with an error and not sent, as AgentGym\'s '
        "client of TextCraft does; false (default): the last one is taken.",
        False,
    ),
    "instructions": Option("Text for the agent before the first observation: the commands of this world.", ""),
    "timeout_s": Option("Seconds for one answer of the server; 60 by default.", 60.0, 0.1, 600),
}


class AgentGymFactory:
    """``speaks_text_only`` shows forms and services that only an agent with a language model can play here."""

    speaks_text_only: ClassVar[bool] = True
    address_options: ClassVar[tuple[str, ...]] = ("base_url",)  # what our workers will call
    description: ClassVar[str] = "A world on an AgentGym environment server, over HTTP; for language models."
    options: ClassVar[Mapping[str, Option]] = OPTIONS
    option_help: ClassVar[Mapping[str, str]] = help_of(OPTIONS)

    def __call__(self, options: Mapping[str, Any]) -> AgentGymEnvironment:
        chosen = read_options(NOUN, options, OPTIONS)
        size = chosen.pop("size")
        if isinstance(size, bool) or not isinstance(size, int) or not MIN_SIZE <= size <= MAX_SIZE:
            raise ValueError(f"{NOUN}: size must be a whole number from {MIN_SIZE} to {MAX_SIZE:,}; got {size!r}.")
        for name, longest in (("reset_key", 64), ("instructions", MAX_INSTRUCTIONS), ("action_keep", MAX_KEEP)):
            if not isinstance(chosen[name], str) or len(chosen[name]) > longest:
                raise ValueError(f"{NOUN}: {name} must be a text of at most {longest:,} characters.")
        address, drop = _address(chosen.pop("base_url")), _outside(chosen.pop("action_keep"))
        return AgentGymEnvironment(AgentGymServer(address, drop=drop, **chosen), size)


def _outside(keep: str) -> re.Pattern[str] | None:
    """Pattern of characters other than these. A character class is searched in one pass, for any number of
    characters."""
    if not keep:
        return None
    if _BRACKET.search(keep) or keep.startswith("^"):
        raise ValueError(f"{NOUN}: action_keep lists characters: escape ], and do not begin with ^; got {keep!r}.")
    try:
        return re.compile(f"[^{keep}]+")
    except re.error as error:
        raise ValueError(f"{NOUN}: action_keep is no class of characters: {error}.") from None


def _address(value: Any) -> str:
    try:
        url = parsed(value if isinstance(value, str) else "")
    except AddressRefused as error:
        raise ValueError(f"{NOUN}: base_url: {error}") from None
    if url.raw_query_string or url.raw_fragment:
        raise ValueError(f"{NOUN}: base_url holds no query and no fragment.")
    return str(value).rstrip("/")


environments.register("agentgym")(AgentGymFactory())
