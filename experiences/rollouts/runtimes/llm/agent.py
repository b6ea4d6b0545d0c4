"""The runtime itself: sets up a rollout's conversation and lets the chosen philosophy lead it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from budgets.llm.types import Message
from experiences.rollouts.conversations import Content, content_shown, content_words, conversation_of
from experiences.rollouts.environments.base import EquippedEpisode, TextEpisode
from experiences.rollouts.runtimes.base import EnvironmentFailure, PromptContext, RolloutAttempt, noting
from experiences.rollouts.runtimes.llm.calls import ChatModel, Conversation, Sampling
from experiences.rollouts.runtimes.llm.philosophies import PHILOSOPHIES, PhilosophyPlay
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS, Instructions
from experiences.rollouts.tools.toolset import Toolset
from experiences.rollouts.types import RolloutKey


def prompt_with(system: str, context: str) -> str:
    """An agent's own prompt and its context, as one text."""
    return "\n\n".join(part for part in (system.strip(), context.strip()) if part)


def said_message(role: str, content: Content) -> Message:
    """A message of a query. Parts of a content go to the service as they are; its text shows images by address."""
    return Message(role, content_shown(content), opaque={} if isinstance(content, str) else {"content": content})


@dataclass
class LLMRuntime:
    """Plays an episode with a language model.

    ``connect`` returns the tools where they have to be connected first, instead of ``toolset``. ``system`` is the
    agent's own prompt; ``context`` is further context, or a source of it for each rollout. ``key_prefix`` names job and
    attempt, so that no call of another attempt has the same key. ``purpose`` selects the payer and the concurrency
    limit.
    """

    model: ChatModel
    sampling: Sampling
    philosophy: str = "react"
    system: str = ""
    context: str | Callable[[RolloutKey, str], PromptContext] = ""
    toolset: Toolset = field(default_factory=Toolset)
    key_prefix: str = "run"
    purpose: str = "training"
    connect: Callable[[], Awaitable[Toolset]] | None = None
    instructions: Instructions = INSTRUCTIONS

    async def play(self, attempt: RolloutAttempt) -> bool:
        """Returns whether the episode ended by itself.

        Raises:
            RolloutFailure, Halted: as ``Runtime`` says.
            UnknownName: there is no such philosophy.
        """
        key, episode = attempt.key, attempt.episode
        if not isinstance(episode, TextEpisode):
            raise EnvironmentFailure("this environment can't be spoken to in text; choose an action agent")
        said = conversation_of(attempt.scenario.query, attempt.scenario.metadata)
        # As at the gateway, the context is that of the user's last words.
        query = attempt.scenario.query if said is None else content_words(said.task)
        given = self.context
        context = PromptContext(given, {}) if isinstance(given, str) else given(key, query)
        toolset = await self._toolset(episode)
        talk = Conversation(
            model=self.model,
            sampling=self.sampling,
            toolset=toolset,
            prefix=f"{self.key_prefix}/{key.path}",
            purpose=self.purpose,
            seed=int(attempt.rng.integers(2**31)),
            record=noting(attempt.record, context),
            check=attempt.check,
            iteration=key.iteration,
        )
        play = PhilosophyPlay(talk, episode, prompt_with(self.system, context.text), self.instructions)
        if said is not None:
            before = tuple(said_message(role, content) for role, content in said.before)
            play = replace(play, system=prompt_with(play.system, said.system), before=before)
            play = replace(play, task=content_shown(said.task), asked=said_message("user", said.task))
        return await PHILOSOPHIES.get(self.philosophy)(play)

    async def _toolset(self, episode: TextEpisode) -> Toolset:
        if isinstance(episode, EquippedEpisode):
            return Toolset(episode.tools)
        return self.toolset if self.connect is None else await self.connect()
