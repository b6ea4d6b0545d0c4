"""Beside what users would pick instead, in the same worlds, with the same model and as many calls of it.

``python -m tests.performance.rivals.bench --workers 2 --worlds 6``. AgentCore's default run says how many calls there
are; the others get as many, and half of them once more. Calls and tokens are those that the server counted while a
method learned; success is the true mean over the held-out queries, each with the context of the method.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any, Final, TypeVar

from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS
from tests.performance.rivals.environment import environment, optimized
from tests.performance.rivals.table import OURS, SHARES, table
from tests.performance.worlds import Result, Task, parser, proved, recorded, served
from tests.support.context_rivals import counted, training_free
from tests.support.context_runs import MODEL, Finished, learned
from tests.support.llm_server import ModelServer
from tests.support.simulated_model import SimulatedModel
from tests.support.world_varied import VariedWorld

SCRIPTS: Final = {"GEPA": "gepa_optimize.py", "MIPROv2": "mipro_optimize.py"}
PORTS: Final = {"training-free GRPO (port)": training_free, "ACE (port)": counted}
MOST_TOKENS: Final = 4  # of ours, that a port may use for as many calls
PROMPT: Final = f"{INSTRUCTIONS.cot}\n\n{INSTRUCTIONS.answer}"  # what everyone begins with
VALIDATION: Final = 1 / 3  # of what is not held out, for those who choose by validation queries

T = TypeVar("T")
Judged = tuple[float, Sequence[str]]  # true mean success, and the texts of the context


@dataclass(frozen=True)
class Bout:
    """One world and the server of its model, the same for all."""

    task: Task
    world: VariedWorld
    server: ModelServer

    @property
    def model(self) -> SimulatedModel:
        brain: Any = self.server.brain
        return brain

    def metered(self, learn: Callable[[], T], judge: Callable[[T], Judged]) -> tuple[T, Result]:
        """The learned context and its success; calls and tokens (thousands) are those of learning alone."""
        calls, tokens, began = self.calls, self._tokens, time.perf_counter()
        found = learn()
        calls, tokens, seconds = self.calls - calls, self._tokens - tokens, time.perf_counter() - began
        success, texts = judge(found)
        advice = self.world.advice_in("\n".join(texts))
        effects = {effect: sum(one.effect == effect for one in advice) for effect in ("helpful", "useless", "harmful")}
        return found, {"success": success, "calls": calls, "ktokens": tokens / 1000, "seconds": seconds, **effects}

    @property
    def calls(self) -> int:
        return sum(self.model.calls.values())

    @property
    def _tokens(self) -> int:
        return self.server.owed.prompt_tokens + self.server.owed.completion_tokens

    # -- the methods -----------------------------------------------------------------------------------------------

    def ours(self, iterations: int | None = None) -> tuple[Finished, Result]:
        """A run of AgentCore at default settings, or of fewer iterations."""
        config = {**self.task.config, **({} if iterations is None else {"n_iterations": iterations})}
        rows = self.task.rows(self.world)
        return self.metered(
            lambda: learned(self.server.base_url, rows, config, seed=self.task.seed),
            lambda run: (proved(run, self.model, run.state.policy, "trained")[0], run.shipped),
        )

    def halved(self, run: Finished, calls: int) -> int:
        """The iterations with which a run makes half of the calls that this one made: its looks cost the same."""
        looks = sum(2 * report.gate.samples * report.gate.n_queries for report in run.reports if report.gate)
        return max(1, round(len(run.reports) * (calls / 2 - looks) / (calls - looks)))

    def port(self, name: str, run: Finished, calls: int, tokens: float) -> Result:
        """One that is ported to our client: it stops at so many calls, or before that at a multiple of so many tokens,
        because it shows all that it has learned with each question it asks."""
        begun = self.calls, self._tokens

        def used() -> int:
            share = (self._tokens - begun[1]) / (MOST_TOKENS * tokens)
            return max(self.calls - begun[0], round(share * calls))

        return self.metered(
            lambda: PORTS[name](run, calls, used)[0],
            lambda context: (proved(run, self.model, context, f"{name}.{calls}")[0], context.texts),
        )[1]

    def script(self, name: str, run: Finished, calls: int) -> Result:
        """One that is installed as it is published, in an environment of its own."""
        task = {**self._data(run), "calls": calls, "base_url": self.server.base_url, "model": MODEL}
        given = {"prompt": PROMPT, "seed": self.task.seed, "temperature": run.setup.config.temperature}
        try:
            return self.metered(
                lambda: optimized(SCRIPTS[name], {**task, **given}),
                lambda prompt: (self._of_prompt(prompt, run), [prompt]),
            )[1]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}

    def _data(self, run: Finished) -> Result:
        held_out = {scenario.query for scenario in run.pools.held_out}
        rows = [
            {"query": row["query"], "answer": str(row["expected_outcome"]["answer"])}
            for row in self.task.rows(self.world)
            if row["query"] not in held_out
        ]
        at = round(len(rows) * (1 - VALIDATION))
        return {"train": rows[:at], "validation": rows[at:]}

    def _of_prompt(self, prompt: str, run: Finished) -> float:
        with self.model.truth() as noted:
            for scenario in run.pools.held_out:
                messages = [{"role": "system", "content": prompt}, {"role": "user", "content": scenario.query}]
                self.model.reply({"messages": messages})
        return fmean(fmean(chances) for chances in noted.values())


def measured(task: Task, *, only: Sequence[str]) -> Result:
    """All methods in one world."""
    world = task.world()
    with served(task, world) as server:
        bout = Bout(task, world, server)
        run, whole = bout.ours()
        base = proved(run, bout.model, run.setup.fresh_state().policy, "baseline")[0]
        found = {f"{OURS}, all calls": whole, f"{OURS}, half": bout.ours(bout.halved(run, whole["calls"]))[1]}
        for method in only:
            for name, share in SHARES.items():
                calls, tokens = round(share * whole["calls"]), share * whole["ktokens"] * 1000
                port = method in PORTS
                result = bout.port(method, run, calls, tokens) if port else bout.script(method, run, calls)
                found[f"{method}, {name}"] = result
                print(f"seed {task.seed}: {method}, {name}: {result}", file=sys.stderr, flush=True)
    return {**asdict(task), **asdict(world.variation), "base": base, "methods": found}


def main(arguments: Sequence[str]) -> int:
    options = parser(__doc__, "rivals.jsonl")
    options.add_argument("--only", default=",".join((*SCRIPTS, *PORTS)), help="which methods, separated by commas")
    given = options.parse_args(arguments)
    only = _available([name.strip() for name in given.only.split(",")])
    print(table(recorded(partial(measured, only=only), given)))
    return 0


def _available(names: Sequence[str]) -> list[str]:
    """Without those that can't be installed here, which is said."""
    if not set(names) & set(SCRIPTS):
        return list(names)
    try:
        environment()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"Not installed here, and left out: {', '.join(SCRIPTS)} ({error})", file=sys.stderr)
        return [name for name in names if name not in SCRIPTS]
    return list(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
