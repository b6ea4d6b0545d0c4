"""Effort of a rollout: turns, seconds, tokens, redundant calls, each relative to the usual value for the type of
task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from experiences.rollouts.rewards import signals
from experiences.rollouts.rewards.window import Scale, Window
from experiences.rollouts.types import Step, Trajectory

CAP: Final = 2.0  # standard deviations
MAX_TYPES: Final = 100  # task types that are remembered


def call_of(step: Step) -> tuple[str, bytes]:
    """The tool and its parameters."""
    parameters = step.action.get("parameters")
    return str(step.action.get("tool")), orjson.dumps(parameters, option=orjson.OPT_SORT_KEYS) if parameters else b""


def redundant_calls(steps: Sequence[Step]) -> int:
    """Calls of a tool that repeat an earlier one, and got the same result. One that failed and then went well, and the
    same call in another state, are none."""
    calls = [
        (call_of(step), orjson.dumps(step.result, option=orjson.OPT_SORT_KEYS, default=str))
        for step in steps
        if step.action.get("type") == "tool"
    ]
    return len(calls) - len(set(calls))


def _seconds(trajectory: Trajectory) -> float:
    # As they are stored: what comes back after a crash is measured alike.
    return sum(round(step.duration_ms, 3) for step in trajectory.steps) / 1e3


class Measure(NamedTuple):
    """``floor``: less apart than that are all tasks of a type that always take as much. ``share`` of efficiency."""

    of: Callable[[Trajectory], float]
    floor: float
    share: float


MEASURES: Final[Mapping[str, Measure]] = {
    "turns": Measure(lambda one: float(len(one.steps)), 0.5, 0.4),
    "seconds": Measure(_seconds, 0.5, 0.2),
    "tokens": Measure(lambda one: float(one.tokens), 20.0, 0.2),
    "redundant_calls": Measure(lambda one: float(redundant_calls(one.steps)), 0.5, 0.2),
}
SHARES: Final[Mapping[str, float]] = {name: measure.share for name, measure in MEASURES.items()}


def efforts(trajectory: Trajectory) -> dict[str, float]:
    """Effort by measure. Seconds count for language models only: for an agent that chooses actions they are noise of
    the machine, and its run is a function of its seed."""
    return {name: measure.of(trajectory) for name, measure in MEASURES.items() if name != "seconds" or trajectory.model}


@dataclass
class UsualEffort:
    """The last ``size`` rollouts of each type of task, measure by measure."""

    size: int
    _types: dict[str, dict[str, Window]] = field(init=False, default_factory=dict)

    def efficiency(self, trajectory: Trajectory, shares: Mapping[str, float]) -> float:
        """In [0, 1]: for each measure 1 at 2 standard deviations less than usual, 0 at 2 more, .5 until there is an
        average; their mean by ``shares``."""
        windows = self._types.get(signals.task_type(trajectory.evidence), {})
        weighed = [
            (shares[name], self._place(windows.get(name), name, value)) for name, value in efforts(trajectory).items()
        ]
        total = sum(share for share, _ in weighed)
        return sum(share * place for share, place in weighed) / total if total else 0.5

    def scale(self, trajectory: Trajectory, name: str) -> Scale:
        """Mean and deviation of a measure for the trajectory's type of task."""
        windows = self._types.get(signals.task_type(trajectory.evidence))
        return Scale() if windows is None else windows[name].scale

    def means(self, trajectory: Trajectory) -> dict[str, float]:
        """The usual value of each measure; those with too few observations are left out."""
        scales = {name: self.scale(trajectory, name) for name in efforts(trajectory)}
        return {name: scale.mean for name, scale in scales.items() if scale.enough}

    @staticmethod
    def _place(window: Window | None, name: str, value: float) -> float:
        if window is None or not window.scale.enough:
            return 0.5
        z = window.scale.z(value, MEASURES[name].floor)
        return (CAP - min(max(z, -CAP), CAP)) / (2 * CAP)

    def learn(self, trajectories: Sequence[Trajectory]) -> None:
        for trajectory in trajectories:
            kind = signals.task_type(trajectory.evidence)
            windows = self._types.pop(kind, None) or self._windows()
            for name, value in efforts(trajectory).items():
                windows[name].add([value])
            self._types[kind] = windows  # at the end: the first is the one that was not seen for longest
        while len(self._types) > MAX_TYPES:
            del self._types[next(iter(self._types))]

    def _windows(self) -> dict[str, Window]:
        return {name: Window(self.size) for name in MEASURES}

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"types": list(self._types)}
        for name in MEASURES:
            kept = [windows[name].values for windows in self._types.values()]
            state[f"lengths/{name}"] = [len(values) for values in kept]
            state[f"usual/{name}"] = np.concatenate([np.zeros(0), *kept])
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._types = {kind: self._windows() for kind in state.get("types", ())}
        # Checkpoints from before there was more than turns have these alone.
        older = {"lengths/turns": state.get("lengths"), "usual/turns": state.get("turns")}
        for name in MEASURES:
            lengths, values = (
                state.get(f"{part}/{name}", older.get(f"{part}/{name}")) for part in ("lengths", "usual")
            )
            if lengths is None or values is None:
                continue
            for windows, part in zip(self._types.values(), _parts(values, lengths), strict=True):
                windows[name].add(part)


def _parts(values: Any, lengths: Sequence[int]) -> Iterator[list[float]]:
    at = 0
    for length in lengths:
        yield values[at : at + length].tolist()
        at += length
