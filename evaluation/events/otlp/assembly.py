"""A trace of spans as a trajectory. Pure, no Django.

A model call is a decision: its tool calls are steps, and its final text is the answer. The result of a tool is that of
the tool's own span, or the one in the input of the next model call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from budgets.pricing import Usage
from evaluation.events.otlp.agent_spans import SILENT, AgentSpan, SpanKind, SpanMessage, SpanToolCall
from experiences.rollouts.call_notes import CallNotes
from experiences.rollouts.types import RolloutKey, Step, Trajectory

EVIDENCE: Final = "otlp"  # the key in a trajectory's evidence for values without a column
MOST_STEPS: Final = 32_767  # of a row
LONGEST_MODEL: Final = 80
Owned = list[tuple[Step, str]]  # steps, each with the id of its span
CostOf = Callable[[str, Usage], int | None]  # micro-dollars of a model call; None: no price is known


class NothingOfAgents(ValueError):
    """No span of the trace is about an agent, a model or a tool."""


def trajectory_of(spans: Iterable[AgentSpan], scenario: int, *, cost_of: CostOf) -> Trajectory:
    """Makes a trajectory of one trace's spans, in any order. Its reward is unknown (NaN); it succeeded if its root did
    not fail.

    Raises:
        NothingOfAgents: the trace is not about an agent.
    """
    found = _joined(sorted(spans, key=lambda span: (span.began, -span.ended, span.id)))
    about_agents = [one for one in found if one.kind not in SILENT]
    if not about_agents:
        raise NothingOfAgents("No span is about an agent, a model or a tool.")
    known = {one.id for one in found}
    root = next(iter(_roots(found, known)), found[0])
    models = _once(_innermost([agent for agent in about_agents if agent.kind is SpanKind.MODEL], found))
    owned, unpriced = _steps(models, [agent for agent in about_agents if agent.kind is SpanKind.TOOL], cost_of)
    if not any(step.action["type"] == "answer" for step, _ in owned):
        owned += _whole_answer(root, about_agents, after=bool(owned))
    steps = _nested(owned, {one.id: one.parent for one in found})
    failed = _last(found, known).error
    ended = max(one.ended for one in found)
    return Trajectory(
        key=RolloutKey(0, scenario, 0),
        query=_asked(models, about_agents) or root.name,
        steps=steps[:MOST_STEPS],
        success=not failed,
        outcome=float(not failed),
        evidence={EVIDENCE: _about(found, models, unpriced)},
        truncated=len(steps) > MOST_STEPS,
        error=f"agent: {failed}" if failed else "",
        model=next((model.model for model in models if model.model), "")[:LONGEST_MODEL],
        started_at=root.began,
        duration_ms=(ended - root.began) * 1e3,
    )


def _roots(found: Sequence[AgentSpan], known: Set[str]) -> list[AgentSpan]:
    """The spans without a parent; where there is none, those whose parent is another program's."""
    return [one for one in found if not one.parent] or [one for one in found if one.parent not in known]


def _last(found: Sequence[AgentSpan], known: Set[str]) -> AgentSpan:
    """The root that decides: of several the one that ended last."""
    return max(_roots(found, known) or found[:1], key=lambda one: one.ended)


def _joined(found: Sequence[AgentSpan]) -> list[AgentSpan]:
    """The spans with the messages that came beside them by a log. A span's own words win."""
    said: dict[str, list[AgentSpan]] = {}
    for one in found:
        if one.kind is SpanKind.MESSAGES:
            said.setdefault(one.parent, []).append(one)
    if not said:
        return list(found)
    for words in said.values():  # Claude Code says the text of an answer again without its calls
        words.sort(key=lambda one: not any(message.calls for message in one.outputs))
    return [
        replace(
            span,
            inputs=span.inputs or tuple(message for one in said[span.id] for message in one.inputs),
            outputs=span.outputs or tuple(message for one in said[span.id] for message in one.outputs),
        )
        if span.id in said
        else span
        for span in found
        if span.kind is not SpanKind.MESSAGES
    ]


def _once(models: Sequence[AgentSpan]) -> list[AgentSpan]:
    """Each call once, where two instrumentations report it side by side. What one does not say is the other's."""
    found: list[AgentSpan] = []
    running: list[int] = []  # places of those that had not ended when the last one began
    for model in models:
        running = [at for at in running if found[at].ended > model.began or found[at].began == model.began]
        at = next((at for at in running if _is_same(found[at], model)), None)
        if at is None:
            running.append(len(found))
            found.append(model)
        else:
            found[at] = _filled(found[at], model)
    return found


def _is_same(first: AgentSpan, second: AgentSpan) -> bool:
    """By the provider's id of the answer, else by tokens and words, of two that run at the same time: a server may give
    all answers one id."""
    if first.response_id and second.response_id:
        return first.response_id == second.response_id
    tokens = (first.input_tokens, first.output_tokens)
    twins = tokens == (second.input_tokens, second.output_tokens) and any(tokens) and second.ended <= first.ended
    return twins and first.name != second.name and _words(first) == _words(second)


def _words(model: AgentSpan) -> tuple[str, list[str]]:
    reply = model.outputs[0] if model.outputs else SpanMessage("", "")
    return reply.text, [call.name for call in reply.calls]


def _filled(first: AgentSpan, second: AgentSpan) -> AgentSpan:
    names = (
        "model",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "cache_written_tokens",
        "inputs",
        "outputs",
        "session",
        "response_id",
        "settings",
    )
    missing = {name: getattr(second, name) for name in names if not getattr(first, name)}
    return replace(first, **missing, cost_usd=second.cost_usd if first.cost_usd is None else first.cost_usd)


def _whole_answer(root: AgentSpan, about_agents: Sequence[AgentSpan], *, after: bool) -> Owned:
    """The answer of an agent of which no call that answers is known. ``after`` other steps it comes at the end."""
    for one in (root, *about_agents):
        if one.outputs and one.outputs[0].text and (one.kind is SpanKind.AGENT or not after):
            ended = replace(one, began=one.ended) if after else one
            return [(_answer(ended, "", one.outputs[0].text), one.id)]
    return []


def _innermost(models: Sequence[AgentSpan], found: Sequence[AgentSpan]) -> list[AgentSpan]:
    """Model calls without an inner model call: two instrumentations may report one call. A call within a tool is
    another call."""
    parents = {span.id: span.parent for span in found}
    tools = {one.id for one in found if one.kind is SpanKind.TOOL}
    outer: set[str] = set()
    for model in models:
        for above in _above(model.id, parents):
            if above in tools:
                break
            outer.add(above)
    return [model for model in models if model.id not in outer]


def _above(id: str, parents: Mapping[str, str]) -> Iterator[str]:
    """The ancestors of a span, the nearest first; a cycle of spans ends where it begins."""
    above, seen = parents.get(id, ""), {id}
    while above and above not in seen:
        yield above
        seen.add(above)
        above = parents.get(above, "")


def _nested(owned: Owned, parents: Mapping[str, str]) -> list[Step]:
    """The steps by time, each with the position of the nearest step whose span contains its own."""
    ordered = sorted(owned, key=lambda pair: pair[0].timestamp)
    places: dict[str, int] = {}  # of the first step of a span
    for at, (_, span) in enumerate(ordered):
        places.setdefault(span, at)
    for at, (step, span) in enumerate(ordered):
        step.parent = next((place for above in _above(span, parents) if (place := places.get(above, at)) < at), None)
    return [step for step, _ in ordered]


def _steps(models: Sequence[AgentSpan], tools: Sequence[AgentSpan], cost_of: CostOf) -> tuple[Owned, list[str]]:
    """One call after the other, and the models without a price."""
    waiting, unpriced, notes = list(tools), set(), CallNotes()
    steps: Owned = []
    for at, one in enumerate(models):
        cost_micros = _cost_micros(one, cost_of)
        if cost_micros is None:
            unpriced.add(one.model)
        later = models[at + 1].inputs if at + 1 < len(models) else ()
        ends = models[at + 1].began if at + 1 < len(models) else math.inf
        own = _decisions(one, waiting, later, ends)
        first, _ = own[0]
        first.tokens, first.cost_micros = one.input_tokens + one.output_tokens, cost_micros or 0
        first.call = notes.noted(one.settings, _finish(one))
        steps += own
    steps += [(_of_tool(span, span.began, ""), span.id) for span in waiting]
    return steps, sorted(unpriced)


def _finish(model: AgentSpan) -> str:
    """The finish reason of its first answer; "" if the span has none."""
    return str(next(iter(model.settings.get("finish", ())), ""))


def _decisions(model: AgentSpan, waiting: list[AgentSpan], later: Sequence[SpanMessage], ends: float) -> Owned:
    """At least one: the decisions of a model call. Removes the spans of its tool calls from ``waiting``. A call without
    words has decided for the tools that ran until the next one began, at ``ends``."""
    seen = model.inputs[-1].text if model.inputs else ""
    if not model.outputs and (ran := [span for span in waiting if model.began <= span.began < ends]):
        waiting[:] = [span for span in waiting if span not in ran]
        return [(_of_tool(span, span.began, seen), span.id) for span in ran]
    reply = model.outputs[0] if model.outputs else SpanMessage("assistant", "")
    if not reply.calls:
        return [(_answer(model, seen, reply.text), model.id)]
    steps: Owned = []
    for call in reply.calls:
        span = _taken(waiting, call, model.began)
        step = _of_call(model, call, seen, later) if span is None else _of_tool(span, model.began, seen)
        step.action["parameters"] = _parameters(call.arguments)
        if step.result["output"] is None and not step.result["error"]:  # a span without words
            step.result["output"] = _answered(call, later)
        step.state["thoughts"] = [reply.text] if reply.text else []
        steps.append((step, model.id if span is None else span.id))
    return steps


def _taken(waiting: list[AgentSpan], call: SpanToolCall, after: float) -> AgentSpan | None:
    """The span of a tool call: by its id, else the next one of its name."""
    by_id = [span for span in waiting if call.id and span.call == call.id]
    named = [span for span in waiting if span.tool == call.name and not span.call]
    by_name = [span for span in named if span.began >= after] or named[-1:]  # a clock that is behind
    if not (found := by_id or by_name):
        return None
    waiting.remove(found[0])
    return found[0]


def _answer(model: AgentSpan, seen: str, text: str) -> Step:
    error = model.error
    return Step(
        state=_state(seen),
        action={"type": "answer", "tool": None, "parameters": {"text": text}},
        result={"success": not error, "output": None, "error": error or None},
        timestamp=model.began,
        duration_ms=_ms(model),
    )


def _of_call(model: AgentSpan, call: SpanToolCall, seen: str, later: Sequence[SpanMessage]) -> Step:
    """A call of a tool that has no span of its own."""
    answer = _answered(call, later)
    return Step(
        state=_state(seen),
        action={"type": "tool", "tool": call.name, "parameters": {}},
        result={"success": answer is not None, "output": answer, "error": None if answer is not None else "no result"},
        timestamp=model.began,
        duration_ms=_ms(model),
    )


def _answered(call: SpanToolCall, later: Sequence[SpanMessage]) -> str | None:
    """The result of a call in the messages of the next one."""
    return next((message.text for message in later if call.id and message.call == call.id), None)


def _of_tool(tool: AgentSpan, began: float, seen: str) -> Step:
    error = tool.error
    return Step(
        state=_state(seen),
        action={"type": "tool", "tool": tool.tool, "parameters": _parameters(tool.arguments)},
        result={"success": not error, "output": tool.result, "error": error or None},
        timestamp=began,
        duration_ms=(tool.ended - began) * 1e3,
    )


def _state(seen: str) -> dict[str, Any]:
    return {"observation": seen, "done": False}


def _parameters(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        return dict(arguments)
    return {} if arguments in (None, "") else {"input": arguments}


def _cost_micros(model: AgentSpan, cost_of: CostOf) -> int | None:
    if model.cost_usd is not None:
        return round(model.cost_usd * 1e6)
    cached = min(model.cached_tokens, model.input_tokens)
    written = min(model.cache_written_tokens, model.input_tokens - cached)
    usage = Usage(model.input_tokens, model.output_tokens, cached_tokens=cached, cache_write_tokens=written)
    return cost_of(model.model, usage)


def _asked(models: Sequence[AgentSpan], about_agents: Sequence[AgentSpan]) -> str:
    """The agent's query: the first text of a user."""
    for one in (*models, *about_agents):
        if (text := next((message.text for message in one.inputs if message.role == "user"), "")) != "":
            return text
    return ""


def _about(found: Sequence[AgentSpan], models: Sequence[AgentSpan], unpriced: Sequence[str]) -> dict[str, Any]:
    """``system``: the system text of the first call; ``spans``: the number of spans."""
    first = models[0].inputs if models else ()
    about = {
        "trace_id": found[0].trace,
        "session_id": next((span.session for span in found if span.session), ""),
        "system": "\n\n".join(message.text for message in first if message.role == "system"),
        "settings": dict(models[0].settings) if models else {},
        "spans": len(found),
    }
    return about | ({"unpriced": list(unpriced)} if unpriced else {})


def _ms(span: AgentSpan) -> float:
    return (span.ended - span.began) * 1e3
