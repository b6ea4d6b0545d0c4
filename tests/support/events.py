"""Messages of a stream, and schemas that refuse unknown fields."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from evaluation.events.publishing import messages_of
from evaluation.events.relay import batch_take
from evaluation.events.schemas import schema_of
from evaluation.events.subjects import REWARD, TRAJECTORY


def exact(subject: str) -> Draft202012Validator:
    """The published schema, for our own payloads: nothing in them that it does not name, and all that it names."""
    return Draft202012Validator(_closed(schema_of(subject)))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    values = {name: _closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema and not isinstance(schema["properties"], list):
        values.setdefault("additionalProperties", False)
    return values


def outgoing_payloads() -> dict[str, list[dict[str, Any]]]:
    """Payloads that the relay would send of all that waits now, by plain subject, without those that are withheld."""
    values: dict[str, list[dict[str, Any]]] = {}
    for message in messages_of(batch_take(10_000)):
        if not message.withheld:
            plain = "agent." + message.subject.partition("agent.")[2]
            values.setdefault(plain, []).append(json.loads(message.body))
    return values


def faults(payloads: dict[str, list[dict[str, Any]]]) -> list[str]:
    """All that payloads of ours have beside, or otherwise than, their schemas."""
    return [
        f"{subject}: {error.json_path}: {error.message}"
        for subject, some in payloads.items()
        for payload in some
        for error in exact(subject).iter_errors(payload)
    ]


async def stored(js: JetStreamContext, stream: str) -> list[tuple[str, dict[str, Any]]]:
    """All messages of a stream that are still there: subject and payload."""
    info = await js.stream_info(stream)
    found = []
    for seq in range(max(1, info.state.first_seq), info.state.last_seq + 1):
        with suppress(NotFoundError):
            message = await js.get_msg(stream, seq)
            found.append((message.subject or "", json.loads(message.data or b"null")))
    return found


def example(subject: str) -> dict[str, Any]:
    """The payload that the design shows, with ids of its own."""
    return copy.deepcopy(EXAMPLES[subject])


EXAMPLES: dict[str, dict[str, Any]] = {
    TRAJECTORY: {
        "trajectory_id": "5b1c2c1e-7f0f-4b8e-9d3c-0c8b9b1d2e3f",
        "session_id": "agent-session-id",
        "agent_id": "agent-zero-main",
        "subordinate_profile": "researcher",
        "start_timestamp": "2025-12-08T12:00:00Z",
        "end_timestamp": "2025-12-08T12:05:30Z",
        "turns": [
            {
                "turn_id": 1,
                "timestamp": "2025-12-08T12:00:00Z",
                "observation": {
                    "type": "user_message",
                    "content": "string or object",
                    "context": {"memory_state": {}, "available_tools": [], "subordinates_active": 2},
                },
                "thought_process": ["thought 1", "thought 2"],
                "action": {
                    "type": "tool_call",
                    "tool_name": "code_exe",
                    "tool_args": {},
                    "raw_response": "full LLM response",
                },
                "result": {
                    "success": True,
                    "output": "tool execution result",
                    "error": None,
                    "execution_time_ms": 1500,
                },
            }
        ],
        "task_context": {
            "task_id": "original-task-id",
            "instructions": "user's original request",
            "complexity_score": 0.75,
            "domain": "coding",
        },
        "metadata": {
            "model": "qwen2.5-32b-instruct",
            "temperature": 0.7,
            "total_tokens": 5000,
            "total_cost_usd": 0.025,
        },
    },
    REWARD: {
        "reward_id": "f0b8a5a4-2b8e-4b0e-8a53-1f1f7b1d9c11",
        "trajectory_id": "5b1c2c1e-7f0f-4b8e-9d3c-0c8b9b1d2e3f",
        "session_id": "agent-session-id",
        "timestamp": "2025-12-08T12:06:00Z",
        "reward_components": {
            "task_completion": {
                "score": 0.9,
                "weight": 0.4,
                "source": "automated",
                "reasoning": "task completed successfully with all requirements met",
            },
            "efficiency": {
                "score": 0.7,
                "weight": 0.2,
                "source": "automated",
                "reasoning": "completed in 5 turns, avg is 7 turns for this task type",
            },
            "code_quality": {
                "score": 0.85,
                "weight": 0.15,
                "source": "linter",
                "reasoning": "pylint score 8.5/10, no critical issues",
            },
            "user_feedback": {
                "score": 1.0,
                "weight": 0.25,
                "source": "human",
                "reasoning": "user marked as helpful",
            },
        },
        "total_reward": 0.8625,
        "reward_type": "dense",
        "normalization": {"method": "z-score", "mean": 0.75, "std": 0.15},
        "metadata": {"evaluator": "rl-trainer-subordinate", "evaluation_method": "hybrid", "confidence": 0.92},
    },
}
