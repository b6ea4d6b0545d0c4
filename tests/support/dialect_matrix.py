"""The table of the documentation: each dialect's server, tried as a plain endpoint and with its profile."""

from __future__ import annotations

import json
from typing import Any

from budgets.llm.profiles import profile_options
from budgets.llm.secret import Secret
from budgets.llm.types import Endpoint
from budgets.meter_port import FreeMeter
from budgets.pricing import Price
from experiences.agents.services.endpoint_trials import EndpointTrial
from tests.support.dialects import DIALECTS, Dialect, DialectServer
from tests.support.llm_client import Prices

HEAD = "| service | refused without options | options that *Test* finds | chat | tools, two turns | JSON | stream |"


async def tried(server: DialectServer, **options: Any) -> EndpointTrial:
    """The test of an endpoint of this server."""
    dialect = server.dialect
    given = {"key_header": dialect.key_header, **options}
    endpoint = Endpoint(server.base_url, dialect.model, api_key=Secret("sk-1"), kind=dialect.kind, **given)  # type: ignore[arg-type]
    trial = EndpointTrial(endpoint, FreeMeter(), Prices(Price(dialect.model, input_micros=1, output_micros=1)))
    await trial.run()
    return trial


async def row(dialect: Dialect) -> str:
    """One line: what a plain endpoint is refused, what a test finds, and the forms of calls with the profile."""
    with DialectServer(dialect) as server:
        found = (await tried(server)).found
        refused = server.refused
        fitted = await tried(server, **profile_options(dialect.address, dialect.model, dialect.kind))
        parts = ["yes" if part.ok else "**no**" for part in fitted.parts]
    options = "; ".join(f"`{name}`: `{json.dumps(value)}`" for name, value in sorted(found.items())) or "none needed"
    return f"| {dialect.name} ({dialect.model}) | {refused or 'nothing'} | {options} | {' | '.join(parts)} |"


async def table() -> str:
    lines = [await row(dialect) for dialect in DIALECTS.values()]
    return "\n".join([HEAD, "|---|---|---|---|---|---|---|", *lines])
