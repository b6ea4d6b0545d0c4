"""One session on an environment server, from its creation at the first word to its closing.

The servers need watching (each rule answers a trap met in theirs): they take steps after the success and then say
``done: false``, so ``done`` is latched here and the rewards are summed here; sessions never expire there, so each is
closed, also one whose creation was cut off while its number was on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from experiences.privacy import cut_short
from experiences.rollouts.environments.agentgym.dialects import Dialect, Reply, reply_in, session_in
from experiences.rollouts.environments.agentgym.wire import AgentGymRefused, GymError, Wire
from experiences.rollouts.environments.base import StepOutcome, result
from experiences.rollouts.types import Outcome

MAX_CRASHES: Final = 3  # answers of HTTP 500 and above in a row, before the world counts as broken
MAX_TEXT: Final = 20_000  # characters of an observation that the agent reads
CLOSE_SECONDS: Final = 5.0
SEVERAL: Final = 'nothing was done: only one "Action:" is allowed in a message'
NO_ACTION: Final = 'nothing was done: write your action after "Action:", on a line of its own at the end'

_ACTION = re.compile(r"\bAction[*_]*[ \t]*:[*_]*")
_IMAGINED = re.compile(r"\n[ \t>*_#]*Observation[*_]*[ \t]*:")


@dataclass
class AgentGymServer:
    """Address and protocol of a server. ``reset_key`` is found out at the first reset where it isn't given.

    ``success_reward`` (above 0) is the summed reward from which an episode is a success. ``drop`` finds what is removed
    from an action before it is sent (None: nothing); with ``one_action`` a message with several is not sent.
    """

    base_url: str
    dialect: str = "auto"
    reset_key: str = ""
    timeout_s: float = 60.0
    success_reward: float = 1.0
    action_format: str = "raw"
    instructions: str = ""
    drop: re.Pattern[str] | None = None
    one_action: bool = False

    def action(self, text: str) -> str:
        """The part of a message that is sent as the action; "" for none."""
        found = text.strip() if self.action_format == "raw" else action_in(text)
        if self.drop is None or not found:
            return found
        return " ".join(self.drop.sub("", found.splitlines()[0]).split())


@dataclass
class GymEpisode:
    """One attempt at task ``data_idx``. Nothing is asked of the server before ``opening``."""

    server: AgentGymServer
    data_idx: int
    _wire: Wire | None = None
    _creating: asyncio.Task[Any] | None = None
    _closing: asyncio.Task[None] | None = None
    _dialect: Dialect | None = None
    _session: int | str | None = None
    _opening: str | None = None
    _rewards: list[float] = field(default_factory=list)
    _done: bool = False
    _crashes: int = 0

    @property
    def one_answer(self) -> bool:
        return False

    async def opening(self) -> str:
        """The instructions and the task's first observation; makes the session.

        Raises:
            GymError: the server can't be reached, or there is no such task.
        """
        if self._opening is None:
            wire = self._wire = Wire(self.server.base_url, self.server.timeout_s)
            # Shielded: a session whose number never arrives could not be closed (``close`` waits for it).
            self._creating = asyncio.ensure_future(wire.post("/create"))
            created = await asyncio.shield(self._creating)
            self._dialect, self._session = session_in(created, self.server.dialect)
            text = reply_in(await self._reset(wire, self._dialect)).observation
            if text is None:
                text = reply_in(await wire.get("/observation", {self._dialect.session: self._session})).observation
            if text is None:
                raise GymError("/observation: the answer holds no observation")
            self._opening = "\n\n".join(part for part in (self.server.instructions.strip(), _cut(text)) if part)
        return self._opening

    async def say(self, text: str) -> StepOutcome:
        """Sends an action. What the server refuses is a failed result that the agent reads.

        Raises:
            GymError: the action's outcome is unknown, or the server crashed ``MAX_CRASHES`` times in a row.
        """
        if self._opening is None:
            await self.opening()
        assert self._wire is not None and self._dialect is not None
        action = self.server.action(text)
        recorded = {"type": "action", "tool": "", "parameters": {"text": action or text}}
        if self._done:
            return StepOutcome(recorded, result(True, "The episode is over."), done=True)
        if self.server.one_action and len(_ACTION.findall(text)) > 1:
            return StepOutcome(recorded, result(False, error=SEVERAL))
        if not action:
            return StepOutcome(recorded, result(False, error=NO_ACTION))
        try:
            reply = reply_in(await self._wire.post("/step", {self._dialect.session: self._session, "action": action}))
        except AgentGymRefused as error:
            self._crashes = self._crashes + 1 if error.status >= 500 else 0
            if self._crashes >= MAX_CRASHES:
                raise GymError(f"{self._crashes} crashes in a row; the last: {error}") from error
            return StepOutcome(recorded, result(False, error=str(error)))
        self._crashes = 0
        return self._outcome(recorded, reply)

    def outcome(self) -> Outcome:
        """The summed reward as a share of what counts as success, in [0, 1]."""
        total = sum(self._rewards)
        share = min(max(total / self.server.success_reward, 0.0), 1.0)
        evidence = {"reward": total, "steps": len(self._rewards), "done": self._done, "data_idx": self.data_idx}
        return Outcome(share, self._succeeded, evidence)

    async def close(self) -> None:
        """Closes the session on the server, even if the rollout is cancelled once more meanwhile. Takes
        ``CLOSE_SECONDS`` at most; what fails is left to the server."""
        wire, self._wire = self._wire, None
        if wire is not None:
            self._closing = asyncio.ensure_future(self._close(wire))
            await asyncio.shield(self._closing)

    @property
    def _succeeded(self) -> bool:
        return sum(self._rewards) >= self.server.success_reward - 1e-9  # sums such as .1 + .2 + .7

    async def _reset(self, wire: Wire, dialect: Dialect) -> Any:
        """Sets the session to the task, under the first name that the server takes it by."""
        names = (self.server.reset_key,) if self.server.reset_key else dialect.tasks
        for name in names:
            try:
                answer = await wire.post("/reset", {dialect.session: self._session, name: self.data_idx})
            except AgentGymRefused as error:
                if error.status != 422 or name == names[-1]:  # 422: it wants another field
                    raise
            else:
                self.server.reset_key = name
                return answer
        raise AssertionError("unreachable: a dialect has a name for its tasks")

    def _outcome(self, recorded: dict[str, Any], reply: Reply) -> StepOutcome:
        if reply.observation is None:
            raise GymError("/step: the answer holds no observation")
        self._rewards.append(reply.reward)
        self._done = reply.done or self._succeeded
        outcome = result(True, _cut(reply.observation)) | {"reward": reply.reward}
        return StepOutcome(recorded, outcome, done=self._done)

    async def _close(self, wire: Wire) -> None:
        with contextlib.suppress(GymError, TimeoutError):
            async with asyncio.timeout(min(CLOSE_SECONDS, self.server.timeout_s)):
                await self._close_session(wire)
        if self._creating is not None:
            self._creating.cancel()
            await asyncio.gather(self._creating, return_exceptions=True)
        await wire.aclose()

    async def _close_session(self, wire: Wire) -> None:
        if self._session is None and self._creating is not None:
            self._dialect, self._session = session_in(await asyncio.shield(self._creating), self.server.dialect)
        if self._dialect is not None:
            await wire.post("/close", {self._dialect.session: self._session})


def action_in(text: str) -> str:
    """The text after the last "Action:", without an observation that the model imagined after it; "" for none."""
    marks = list(_ACTION.finditer(text))
    if not marks:
        return ""
    action = _IMAGINED.split(text[marks[-1].end() :], maxsplit=1)[0].strip()
    if action.startswith("```") and action.endswith("```") and len(action) > 6:
        action = action.strip("`").partition("\n")[2].strip() or action.strip("`").strip()
    elif len(action) > 2 and action.startswith("`") and action.endswith("`"):
        action = action.strip("`").strip()
    return action


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{cut_short(text, MAX_TEXT)}\n[cut: {len(text):,} characters]"
