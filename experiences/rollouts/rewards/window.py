"""Trailing observations and their statistics: the scale on which a component is measured.

What is added counts only once it is asked to: ``Window.add`` changes what ``scale`` says, so it is called between
iterations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
ENOUGH: Final = 30  # observations before a mean and a spread say anything


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation (of the population) of ``n`` observations; 0 and 0 of none."""

    n: int = 0
    mean: float = 0.0
    std: float = 0.0

    @property
    def enough(self) -> bool:
        return self.n >= ENOUGH

    def z(self, value: float, floor: float) -> float:
        """(value - mean) / max(std, floor): the floor keeps a nearly constant component from exploding."""
        return (value - self.mean) / max(self.std, floor)


@dataclass
class Window:
    """The last ``size`` observations, oldest first."""

    size: int
    _values: deque[float] = field(init=False)
    _scale: Scale | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._values = deque(maxlen=self.size)

    def add(self, values: Iterable[float]) -> None:
        self._values.extend(values)
        self._scale = None

    @property
    def values(self) -> FloatArray:
        """(n,) float64: what the checkpoint keeps, bit for bit."""
        return np.array(self._values, dtype=np.float64)

    @property
    def scale(self) -> Scale:
        if self._scale is None:
            values = self.values
            self._scale = Scale(len(values), float(values.mean()), float(values.std())) if len(values) else Scale()
        return self._scale
