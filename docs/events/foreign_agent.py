"""An agent elsewhere: publishes its trajectories and rewards, requests a training, and receives its status.

NATS_URL=nats://p-1a2b3c4d5e6f:PASSWORD@127.0.0.1:42220 python foreign_agent.py
"""

import asyncio
import json
import os
import uuid

import nats

AGENT, MODEL = "agent-zero-main", "qwen2.5-32b-instruct"
QUESTION = {"type": "user_message", "content": "What is 6 times 7?"}
ANSWER = {"type": "response", "raw_response": "42"}


async def main() -> None:
    client = await nats.connect(os.environ["NATS_URL"])
    stream = client.jetstream()
    statuses = await client.subscribe("agent.rl.training.status.v1")

    async def publish(subject: str, payload: dict[str, object]) -> None:
        stored = await stream.publish(f"agent.rl.{subject}.v1", json.dumps(payload).encode())
        print(f"{subject}: message {stored.seq} of {stored.stream}")

    trajectory, job = str(uuid.uuid4()), str(uuid.uuid4())
    lived = {"trajectory_id": trajectory, "session_id": "s-1", "agent_id": AGENT}
    await publish("trajectory", {**lived, "turns": [{"observation": QUESTION, "action": ANSWER}]})
    await publish("reward", {"reward_id": str(uuid.uuid4()), "trajectory_id": trajectory, "total_reward": 1.0})
    config = {"algorithm": "rloo", "base_model": MODEL}
    await publish("training.request", {"training_job_id": job, "training_config": config})
    async for message in statuses.messages:
        status = json.loads(message.data)
        if status["training_job_id"] == job:
            print(f"training: {status['status']}")
            break
    await client.close()


asyncio.run(main())
