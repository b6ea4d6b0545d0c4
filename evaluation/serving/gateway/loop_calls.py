"""The ``Calls`` of an event loop, which the gateway and the playground share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from django.conf import settings

from evaluation.serving.gateway.calls import Calls

_shared: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Calls]] = WeakKeyDictionary()


def calls_shared(loop: asyncio.AbstractEventLoop) -> Calls:
    """The calls of the loop, which are made where there are none. ``calls_end`` ends them."""
    if loop not in _shared:
        _shared[loop] = Calls(Path(settings.GATEWAY_JOURNAL))
    return _shared[loop]


async def calls_end() -> None:
    """Settles and stores the work of all calls of the running loop that ended."""
    if (found := _shared.pop(asyncio.get_running_loop(), None)) is not None:
        await found.aclose()


@asynccontextmanager
async def calls_here() -> AsyncIterator[Calls]:
    """The calls of the running loop. A loop without a gateway has calls of its own for the block, which are settled and
    stored at its end."""
    loop = asyncio.get_running_loop()
    if loop in _shared:
        yield _shared[loop]
        return
    try:
        yield calls_shared(loop)
    finally:
        await calls_end()
