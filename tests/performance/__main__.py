"""``make bench``: runs every figure and prints the table.

Arguments choose parts (science storage archive export search jobs crowd scale growth llm ace ledger paid privacy
learning telemetry rewarders feedback gateway events bad_events flood otlp poison walls context
playbooks),
or one of a part: ``jobs.fairness``. Benches of their own: ``fuzz [requests]``, ``neighbour [door …]``, ``restarts
[number]``, ``weights [speed] FOLDER [options]``, and with options ``worlds``, ``again``, ``same``, ``rivals``,
``canary``, ``gate``."""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

if __name__ == "__main__":
    # Run before anything is started or set here: fuzz asks the site as it is shipped, the others need neither Django
    # nor a service.
    own = {
        "fuzz": "tests.performance.fuzz.bench",
        "worlds": "tests.performance.worlds",
        "again": "tests.performance.worlds_again",
        "same": "tests.performance.same",
        "rivals": "tests.performance.rivals.bench",
        "canary": "tests.performance.canary",
        "gate": "tests.performance.gate",
        "neighbour": "tests.performance.neighbour",
        "restarts": "tests.performance.restarts",
        "weights": "tests.performance.weights",
    }
    if bench := own.get("".join(sys.argv[1:2])):
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
        sys.exit(import_module(bench).main(sys.argv[2:]))

os.environ.setdefault("JOB_LEASE_SECONDS", "30")
os.environ.setdefault("TRAINING_JOBS_PER_USER", "1000")
from tests import services
from tests.support import database_snapshot

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")


def main() -> int:
    services.start(serving=True)  # before Django reads where they are
    if database_snapshot.is_copy:
        for name in ("DATABASE_URL", "DATABASE_OWNER_URL"):
            os.environ[name] = database_snapshot.migrated(os.environ[name])
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from django.db import connection

    from agentcore_site.lib import row_scope
    from tests.support import owner

    with connection.cursor() as cursor:
        owner.share_with_application(cursor)  # tables are emptied between two figures
    owner.leave()  # figures are of the application's role
    row_scope.outside(row_scope.EVERYTHING)
    from tests.performance import (
        ace,
        archive,
        context,
        crowd,
        events,
        export,
        feedback,
        floods,
        gateway,
        growth,
        jobs,
        learning,
        ledger,
        llm,
        otlp,
        paid,
        playbooks,
        poison,
        privacy,
        rewarders,
        scale,
        science,
        smallest,
        step_search,
        storage,
        telemetry,
        walls,
    )
    from tests.performance.table import Figure, show

    parts = {
        "science": [science.rollouts, science.update],
        "storage": [storage.writes, storage.encrypted],
        "archive": [archive.months, archive.growth],
        "export": [export.suite],
        "search": [step_search.pages],
        "jobs": [jobs.one_worker, jobs.fairness, smallest.iteration],
        "crowd": [crowd.crowd],
        "scale": [scale.pages],
        "growth": [growth.growth],
        "llm": [llm.calls, llm.rollouts, llm.job, llm.broken],
        "events": [events.relayed, events.latency, events.producers],
        "bad_events": [events.poisoned],
        "flood": [floods.flooded],
        "ace": [ace.contexts, ace.evolutions],
        "playbooks": [playbooks.lives],
        "ledger": [ledger.pairs, ledger.together, ledger.killed],
        "paid": [paid.random_kills],
        "privacy": [privacy.redaction],
        "learning": [learning.seeds],
        "telemetry": [telemetry.spans],
        "rewarders": [rewarders.suite],
        "feedback": [feedback.suite],
        "gateway": [gateway.calls],
        "otlp": [otlp.suite],
        "poison": [poison.poison],
        "walls": [walls.costs],
        "context": [context.gains, context.nulls, context.free],
    }
    figures: list[Figure] = []
    for chosen in sys.argv[1:] or list(parts):
        name, _, only = chosen.partition(".")
        for measure in parts[name]:
            if only and measure.__name__ != only:
                continue
            began = time.perf_counter()
            figures += measure()
            print(f"{name}.{measure.__name__}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    show(figures)
    return 0


if __name__ == "__main__":
    try:
        status = main()
    finally:
        services.pytest_unconfigure()
    sys.exit(status)
