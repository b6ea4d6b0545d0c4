"""A canary gets its decision while the processes of the site are killed at random moments."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentcore_site.embedded import ports
from agentcore_site.embedded.management.commands.up import Command
from agentcore_site.embedded.supervisor import Supervisor
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.services import api_key_create
from evaluation.serving.deployments.advance import deployments_advance
from evaluation.serving.deployments.rules import DeploymentRule, Stage
from evaluation.serving.deployments.services import deployment_start, serving_change
from evaluation.serving.gate.verdict import GateRule
from evaluation.serving.models import ProductionTrace
from evaluation.serving.releases.services import release_make
from tests.support.llm_server import ModelServer
from tests.support.playbooks import PRICE, model_agent
from tests.support.rounds import rounds
from tests.support.workers import environment

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.thorough(reason="kills at random moments"),
]

CALLERS, KILLS, SECONDS = 6, rounds(4, 16), 330
BEFORE = rounds(2, 10)  # kills before the worse release gives itself away, so that its evidence outlives them


@pytest.mark.rounds
def test_a_canary_is_decided_while_web_processes_are_killed(
    adam: Any, acme: Organization, broker: Any, tmp_path: Path
) -> None:
    draw = random.Random(seed := random.randrange(10**6))
    print("seed", seed)
    admin, kills = Actor(adam, interface="test"), 0

    def answer(messages: list[dict[str, Any]]) -> str:
        """The worse release names a person."""
        if "worse" not in str(messages):
            return "On Monday."
        return "On Tuesday. Write to jane.doe@example.org." if kills >= BEFORE else "On Tuesday."

    with ModelServer(brain=answer, prices={"small": PRICE}) as server:
        agent = model_agent(admin, server)
        serving_change(admin, agent, fallbacks=[], while_away_usd=0, gate=GateRule(safety=False))
        deployment_start(admin, release_make(admin, agent), strategy="immediate")
        agent.system_prompt = "You answer worse."
        agent.save()
        deployment = deployment_start(
            admin, release_make(admin, agent), strategy="canary", rule=DeploymentRule((Stage(0.5, 0, 1_000),))
        )
        _, key = api_key_create(admin, name="shop", scopes=["gateway:call"])
        port, keeper = ports.free_port(0), Supervisor(tmp_path, print)
        given = environment() | {"GATEWAY_JOURNAL": str(tmp_path / "journal")}
        for process in Command()._web("127.0.0.1", port, given):
            keeper.start(process)
        address = f"http://127.0.0.1:{port}/v1/chat/completions"
        ended, statuses, answers = threading.Event(), Counter[int](), defaultdict[str, set[str]](set)

        def call(seeded: int) -> None:
            mine = random.Random(seeded)
            while not ended.wait(0.02):
                session = f"s{mine.randrange(10**6)}"
                body = {"model": f"agent:{agent.slug}", "messages": [{"role": "user", "content": "?"}]}
                head = {"authorization": f"Bearer {key}", "x-session-id": session}
                for _ in range(2):
                    with suppress(httpx.TransportError):  # of a call whose process was killed
                        found = httpx.post(address, json=body, headers=head, timeout=60)
                        statuses[found.status_code] += 1
                        if found.status_code == 200:
                            answers[session].add(found.json()["choices"][0]["message"]["content"][:8])

        callers = [threading.Thread(target=call, args=(seed + n,)) for n in range(CALLERS)]
        for one in callers:
            one.start()
        due = time.monotonic()
        ends = due + SECONDS
        try:
            while deployment.state == "running" and time.monotonic() < ends:
                keeper.watch()
                ready = [one for one in keeper.running if one.is_alive and one.was_ready]
                if ready and kills < KILLS and time.monotonic() > due:
                    draw.choice(ready).handle.kill()
                    kills, due = kills + 1, time.monotonic() + draw.uniform(1, 8)
                deployments_advance()
                deployment.refresh_from_db()
                time.sleep(0.1)
        finally:
            ended.set()
            for one in callers:
                one.join()
            keeper.stop()
    print(f"{kills} kills, answers by status {dict(statuses)}")
    assert deployment.state == "rolled_back" and "safety" in deployment.reason, deployment.state
    assert kills >= BEFORE and not [status for status in statuses if status >= 500], statuses
    # No session sees both releases, but for those under way at the moment when the canary is taken back.
    assert sum(len(found) > 1 for found in answers.values()) <= CALLERS < len(answers) / 2
    assert ProductionTrace.objects.filter(organization=acme).count() >= statuses[200]
