"""The REST interface under schemathesis: each operation with valid and invalid data, links followed, other methods."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any, Final

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.performance.fuzz.tally import Tally
from tests.performance.fuzz.world import Caller
from tests.support.openapi import described

CHECKS: Final = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "X-ODD")
REAL: Final = 0.6  # of all path parameters are ids of rows that are there
STEPS: Final = 8
ROUND: Final = 4  # scenarios that are played before they begin again
UNSENT: Final = (requests.RequestException, UnicodeError, ValueError)


def chosen(examples: int) -> Any:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
    )


class Rest:
    """One caller's requests at the REST interface of ``base``."""

    def __init__(self, base: str, caller: Caller, n: int, number: int) -> None:
        self.base, self.caller, self.n, self.number = base, caller, n, number
        self.chance = random.Random(number)
        self.session = requests.Session()
        self.session.headers.update(caller.headers)
        self.schema = schemathesis.openapi.from_dict(deepcopy(described()))
        self.schema.config.update(base_url=base)
        self.tags: dict[str, str] = {}  # the last version of what is under a path

    # -- each operation ---------------------------------------------------------------------------------------------

    def operations(self) -> Tally:
        tally = Tally("REST, each operation", self.caller.name)
        found = [result.ok() for result in self.schema.get_all_operations()]
        each = max(1, self.n // (2 * len(found)))
        for operation in found:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                test = given(case=operation.as_strategy(generation_mode=mode))(lambda case: self._case(tally, case))
                try:
                    seed(self.number)(chosen(each)(test))()
                except schemathesis.errors.SchemathesisError:  # nothing about this operation can be invalid
                    continue
        return tally

    def _case(self, tally: Tally, case: Any) -> None:
        for name in case.path_parameters or {}:
            ids = self._ids(case.path, name)
            if ids and self.chance.random() < REAL:
                case.path_parameters[name] = self.chance.choice(ids)
        if case.headers and "If-Match" in case.headers and self.chance.random() < REAL:
            case.headers["If-Match"] = self.tags.get(case.formatted_path, "*")
        try:
            response = case.call(session=self.session)
        except UNSENT:
            tally.unsent += 1
            return
        if "ETag" in response.headers:
            self.tags[case.formatted_path] = response.headers["ETag"]
        self._judge(tally, case, response)

    def _judge(self, tally: Tally, case: Any, response: Any) -> None:
        what = f"{case.method} {response.request.path_url if response.status_code >= 500 else case.formatted_path}"
        text = response.content.decode("utf-8", "replace")  # a checkpoint is no text
        tally.answer(response.status_code, text, list(self.caller.foreign), what)
        if response.status_code == 429 or response.status_code >= 500:
            return
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            tally.fault("undocumented", f"{case.method} {case.path} {response.status_code}", str(group)[:500])

    def _ids(self, path: str, name: str) -> list[str]:
        """Ids of rows by the part of the path before the parameter."""
        before = path.split("{" + name + "}")[0].rstrip("/").rsplit("/", 1)[-1]
        return self.caller.ids.get(before, [])

    # -- links ------------------------------------------------------------------------------------------------------

    def links(self) -> Tally:
        """Scenarios of some steps, in which what one operation answered is what the next is asked with."""
        tally = Tally("REST, links followed", self.caller.name)
        rest, machine = self, self.schema.as_state_machine()

        class Flow(machine):  # type: ignore[misc, valid-type]
            def get_call_kwargs(self, case: Any) -> dict[str, Any]:
                return {"session": rest.session}

            def validate_response(self, response: Any, case: Any, **more: Any) -> None:
                rest._judge(tally, case, response)

        rounds = 0
        while tally.requests < self.n and rounds < self.n:
            rounds += 1
            try:
                run_state_machine_as_test(seed(self.number * self.n + rounds)(Flow), settings=chosen(ROUND))
            except (*UNSENT, HypothesisException):
                # Hypothesis plays a scenario again and wonders that the site answers otherwise: its rows have changed.
                tally.unsent += 1
        return tally

    # -- other methods ----------------------------------------------------------------------------------------------

    def methods(self) -> Tally:
        """Each path with methods that it does not have: 405, or the refusal of a caller without the permission."""
        tally = Tally("REST, other methods", self.caller.name)
        for path, item in self.schema.raw_schema["paths"].items():
            for method in METHODS:
                if method.lower() not in item:
                    self._other(tally, method, path)
        return tally

    def _other(self, tally: Tally, method: str, path: str) -> None:
        real = path
        while "{" in real:
            name = real.split("{", 1)[1].split("}", 1)[0]
            ids = self._ids(path, name)
            real = real.replace("{" + name + "}", self.chance.choice(ids) if ids else "1", 1)
        body = b"{}" if self.chance.random() < 0.5 else None
        headers = {"Content-Type": "application/json"} if body else {}
        answer = self.session.request(method, self.base + real, data=body, headers=headers, allow_redirects=False)
        tally.answer(answer.status_code, answer.text, list(self.caller.foreign), f"{method} {path}")
        documented = {200, 204, 400, 401, 403, 404, 405, 429}
        if method == "HEAD" and "get" in self.schema.raw_schema["paths"][path]:
            documented |= {int(status) for status in self.schema.raw_schema["paths"][path]["get"]["responses"]}
        if answer.status_code not in documented and answer.status_code < 500:
            tally.fault("undocumented", f"{method} {path} {answer.status_code}", answer.text[:200])
