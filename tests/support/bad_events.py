"""Bad events by the thousand: payloads of the design, broken at random, of others' agents, doubled, out of order."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from evaluation.events.subjects import REQUEST, REWARD, STATUS, TRAJECTORY
from tests.support.events import example

VALUES: tuple[Any, ...] = (
    None, "", 0, -1, 1e308, 2**63, True, [], {}, "\x00", "\ud800", "x" * 70_000, [[]] * 100, {"a": {"b": {}}},
    "9999-12-31T23:59:59+14:00", "0001-01-01", "../../etc/passwd", "'; DROP TABLE jobs_job; --",
)  # fmt: skip
RAW: tuple[bytes, ...] = (
    b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b"NaN", b"{" * 2_000, b'{"a":' * 500 + b"1" + b"}" * 500,
    b'{"trajectory_id": 1e999}',
)  # fmt: skip


def bad_events(n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Subject and body; the same for the same seed. Some of them are good, and some come twice."""
    chance = random.Random(seed)
    before: list[tuple[str, bytes]] = [(TRAJECTORY, b"{}")]
    for number in range(n):
        kind = chance.random()
        if kind < 0.1:
            yield chance.choice(before)
        elif kind < 0.2:
            yield chance.choice((TRAJECTORY, REWARD, REQUEST, STATUS)), chance.choice(RAW)
        else:
            subject, payload = _payload(chance, number)
            for _ in range(chance.choice((0, 1, 1, 2, 3))):
                _break(payload, chance)
            body = json.dumps(payload).encode()
            before.append((subject, body))
            yield subject, body


def _payload(chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    subject = chance.choice((TRAJECTORY, TRAJECTORY, REWARD, STATUS))
    if subject == STATUS:
        return subject, {"training_job_id": f"t-{number}", "status": "running", "timestamp": "2026-01-01T00:00:00Z"}
    payload = example(subject)
    payload["trajectory_id"] = f"trajectory-{chance.randrange(number + 1)}"
    if subject == REWARD:
        payload["reward_id"] = f"reward-{chance.randrange(number + 1)}"
    else:
        payload["agent_id"] = chance.choice((payload["agent_id"], "of-others", "neighbour"))
    return subject, payload


def _break(value: Any, chance: random.Random) -> None:
    """Puts something else in one place, takes it away, or puts something beside it."""
    if isinstance(value, list) and value:
        place: Any = chance.randrange(len(value))
    elif isinstance(value, dict) and value:
        place = chance.choice(list(value))
    else:
        return
    inner = value[place]
    if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
        _break(inner, chance)
    elif isinstance(value, dict) and chance.random() < 0.3:
        del value[place]
    else:
        value[place] = copy.deepcopy(chance.choice(VALUES))  # what is put in is broken again
