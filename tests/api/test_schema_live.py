"""The whole description against the real server: reading and writing, with ids of rows that are there, and with what
one operation answered as the next one's question. A bounded part of ``make bench ARGS="fuzz 100000 operations links"``.

Two admins of two organisations ask. No answer is a 5xx, each is documented in status, headers and shape, and neither
admin receives a name of the other's.
"""

from __future__ import annotations

import json

import pytest

from tests.performance.fuzz import world
from tests.performance.fuzz.rest import Rest
from tests.performance.fuzz.tally import Tally
from tests.support.workers import LiveSite

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.thorough(reason="every operation on stored rows")]

EACH = 1  # of valid and of invalid requests for each operation and caller
LINKED = 40


@pytest.mark.slow(reason="it asks every operation of the description over a socket")
def test_every_operation_answers_as_described_of_rows_that_are_there(live_site: LiveSite) -> None:
    callers = {one.name: one for one in world.make()}
    tallies: list[Tally] = []
    for number, name in enumerate(("admin", "other admin")):
        rest = Rest(live_site.url, callers[name], 0, number)
        operations = len([*rest.schema.get_all_operations()])
        rest.n = 2 * EACH * operations
        tallies.append(rest.operations())
        assert tallies[-1].requests >= operations
        world.mend([*callers.values()])  # keys and roles that it revoked
    links = Rest(live_site.url, callers["admin"], LINKED, 7).links()
    assert links.requests >= LINKED
    failures = {tally.interface + ", " + tally.caller: tally.examples for tally in [*tallies, links] if tally.wrong}
    assert not failures, json.dumps(failures, indent=2)[:8000]
    answered = sum((tally.statuses for tally in tallies), tallies[0].statuses.__class__())
    assert {200, 201, 204, 400, 404} <= set(answered), answered  # it reached rows, made some, and was refused some
