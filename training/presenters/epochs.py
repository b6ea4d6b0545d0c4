"""Context of the Learned tab: the verdict in words, epochs with their gates, lessons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from agentcore_site.console import svg
from agentcore_site.console.svg import Picture
from agentcore_site.lib.figures import p_words
from agentcore_site.templatetags.figures import count, percent, points
from agentcore_site.tenancy.actors import Actor
from experiences.lessons.presenters import LessonVerdict, lessons
from experiences.lessons.selectors import Z, experiences_visible
from experiences.models import Experience
from training.models import TrainingRun
from training.policies.query_words import words_by_hash
from training.selectors.failed_rollouts import failed_rollouts, stopped_without_signal, unanswered, without_signal
from training.selectors.run_lessons import EpochFigures, costs_of_finding, goes_on_from, lessons_of_run, run_epochs

SHOWN: Final = 40  # lessons on the tab; the library has all of them
CHANGES: Final = 200  # proposals of an epoch that are listed

# Why a proposal was refused, in more words than its receipt has: the first that the receipt contains.
EXPLAINED: Final[Mapping[str, str]] = {
    "words": "A long lesson says several things, whose effects can't be measured separately.",
    "it is known": "Nearly the same words are in the library, where the new evidence was added.",
    "would be the same": "Nearly the same words are in the library already.",
    "at once are enough": "The same rollouts can't separate the effects of too many new lessons at once.",
    "the library is full": "A lesson makes room only where evidence speaks against it.",
    "in quarantine": "It reads like an order to the agent, and not like advice: a person has to look at it.",
    "left to what it is measured": "Opinions delete nothing where rewards decide.",
    "has been measured": "What was measured of it would say nothing about another text.",
    "there is no lesson": "The model named a lesson that does not exist.",
    "unknown:": "The model named a lesson that does not exist.",
    "can't be merged": "A lesson that was measured, or taken out, keeps its own text.",
    "would take out": "A batch that takes out much of the library is a rewrite, in which what was learned is lost.",
    "section of the playbook": "Playbooks have their own way of being changed.",
    "no lesson that was drafted": "Only what a comparison of attempts taught is added: what they say may be an order.",
    "gives the answer": "It would only help where the query is known already.",
    "piece of an attempt": "A lesson is used in full or not at all.",
    "says so already": "The text would be the same.",
}


def learned_tab(actor: Actor, run: TrainingRun) -> dict[str, Any]:
    """Everything that the tab shows."""
    epochs = run_epochs(run)
    mine = lessons_of_run(run).values("id")
    rows = experiences_visible(actor).filter(id__in=mine)
    by_use = sorted(rows, key=lambda row: (row.status != "active", -(row.effect or 0.0), row.handle))
    costs = costs_of_finding(run, by_use)
    scale = max((abs(edge) for epoch in epochs for edge in _edges(epoch["gate"])), default=0.0)
    return {
        "agent": run.agent,
        "learned": verdict(run, epochs),
        "continues": None if run.continues is None else run.continues.job,
        "went_on": went_on_words(run),
        "epochs": [_epoch(epoch, scale, by_use, costs) for epoch in epochs],
        "lessons": lessons(by_use[:SHOWN], costs=costs),
        "priced": True,
        "n_lessons": len(by_use),
        "gate_only_at_end": run.configuration.algorithm != "tfgrpo",
    }


# -- words -------------------------------------------------------------------------------------------------------------


def verdict(run: TrainingRun, epochs: Sequence[EpochFigures]) -> LessonVerdict:
    """The last decision of the gate in a sentence: result, interval, lessons in use; before that, what is tried."""
    if not epochs:
        return LessonVerdict("No lessons yet.", "quiet")
    seen = [(epoch["epoch"], epoch["gate"]) for epoch in epochs if epoch["gate"] is not None]
    decided = [(number, gate) for number, gate in seen if outcome(gate) in ("accepted", "refused")]
    total = run.configuration.context.epochs
    if not seen:
        last = epochs[-1]
        tried = f"{_lessons(last['taken'])} taken up, {count(last['refused'])} proposals refused"
        return LessonVerdict(f"Epoch {last['epoch']} of {total}: {tried}; the gate has not decided yet.")
    if not decided:
        return _searched(*seen[-1], total)
    number, gate = decided[-1]
    head = f"Epoch {number} of {total}: the gate"
    lessons = _lessons(len(gate["candidate"]))
    if not gate.get("looks", 1):
        return LessonVerdict(f"{head} had nothing to decide: the new context is {run.baseline}.")
    if gate["accepted"]:
        cost = f"they add {count(gate['tokens'])} tokens per call"
        tone = "good" if gate["seen"].get("improvement_low", -1) > 0 else ""
        return LessonVerdict(f"{head} accepted {lessons}: {gain_words(gate)}; {cost}.", tone)
    left = len(set(gate["current"]) - set(gate["rolled_back"]))
    stays = f"{_lessons(left)} {'stays' if left == 1 else 'stay'} in use" if left else "no lessons"
    return LessonVerdict(f"{head} refused a candidate of {lessons}, since {gate['why']}: {gain_words(gate)}; {stays}.")


def went_on_words(run: TrainingRun) -> str:
    """The part of an earlier run that this run took over; "" without an earlier run."""
    found = goes_on_from(run)
    if found is None:
        return ""
    refused, rollouts = found["refused"], found["rollouts"]
    again = (
        f"{_lessons(refused)} that its gate refused {'is' if refused == 1 else 'are'} tried again" if refused else ""
    )
    counts = f"the effects begin with {count(rollouts)} rollouts that were paid for before" if rollouts else ""
    if rollouts and found["changed"]:
        weight = percent(found["weight"], 0)
        counts += f", each at {weight} of its weight since the agent's {' and '.join(found['changed'])} changed"
    return "; ".join(part for part in (again, counts) if part) or "nothing that it measured is left"


def _searched(number: int, gate: Mapping[str, Any], total: int) -> LessonVerdict:
    """State of the search after an epoch."""
    tried = _lessons(len(gate["candidate"]))
    came = f"keeps {tried}" if gate["kept"] else f"went back to {_lessons(len(gate['current']))} from {tried}"
    return LessonVerdict(
        f"Epoch {number} of {total}: the search {came}, since {gate['why']}: {gain_words(gate)}; the gate"
        " decides at the end of the run, and the context stays the same until then."
    )


def outcome(gate: Mapping[str, Any]) -> str:
    """Outcome of the end of an epoch: "accepted" or "refused" by the gate at the end of a run, "kept" or "rolled back"
    by the search. In earlier releases each epoch ended at a gate."""
    if not gate.get("final", True):
        return "kept" if gate["kept"] else "rolled back"
    return "accepted" if gate.get("accepted") else "refused"


def search_words(gate: Mapping[str, Any]) -> str:
    """After which iterations of an epoch the search kept what it had learned, and after which it gave it up."""
    ends = {
        kept: [str(one["iteration"]) for one in gate.get("steps", []) if one["kept"] is kept] for kept in (True, False)
    }
    sentences = [
        f"{word} after iteration {', '.join(ends[kept])}"
        for kept, word in ((True, "kept"), (False, "given up"))
        if ends[kept]
    ]
    return "; ".join(sentences)


def nothing_changed(run: TrainingRun) -> str:
    """The verdict of a run that ships what it began with, in which there is nothing to prove."""
    epochs = run_epochs(run)
    gates = [epoch["gate"] for epoch in epochs if epoch["gate"] is not None]
    decided = [gate for gate in gates if gate.get("looks", 1) and outcome(gate) in ("accepted", "refused")]
    head = "Nothing was changed: the agent goes on with what it had before this run."
    failed = failed_rollouts(run)
    if failed.verdict:
        return failed.verdict
    if not decided:
        why = " ".join(filter(None, (_all_refused(epochs), without_signal(run))))
        found = unanswered(run) or f"No useful lesson was found. {why}".rstrip()
        return " ".join(filter(None, (head, found, stopped_without_signal(run), failed.sentence())))
    gate = decided[-1]
    return (
        f"{head} The best candidate, {_lessons(len(gate['candidate']))}, came to {gain_words(gate)}: not enough to be"
        f" sure that it helps. {stopped_without_signal(run)} {failed.sentence()}"
    ).rstrip()


def _all_refused(epochs: Sequence[EpochFigures]) -> str:
    """A sentence about a run in which each proposed lesson was refused before it was measured; "" for others."""
    why: Counter[str] = Counter()
    for epoch in epochs:
        why.update(epoch["refusals"])
    if not why or any(epoch["taken"] for epoch in epochs):
        return ""
    [(most, _)] = why.most_common(1)
    n = why.total()
    return (
        f"{'The one proposal was' if n == 1 else f'All {count(n)} proposals were'} refused, most often because {most}."
    )


def gain_words(gate: Mapping[str, Any]) -> str:
    """Gain over the initial context, with its certainty; a step of a search gives none."""
    if not gate.get("final", True):
        return f"{points(gate['gain'])} points on the search's training queries"
    seen = gate["seen"]
    gain = f"{points(gate['gain'])} points on the selection queries"
    p = p_words(gate["p_value"])
    if "improvement_low" not in seen:
        return f"{gain} ({p})"
    interval = f"{points(seen['improvement_low'])} to {points(seen['improvement_high'])}"
    return f"{gain} (95 % interval {interval}), {p}"


def takes_words(gate: Mapping[str, Any]) -> str:
    """Requirements for a refused candidate to pass, if its true gain is the measured one; "" without a refusal."""
    if outcome(gate) != "refused" or not gate.get("looks", 1) or "needs" not in gate:
        return ""
    if gate["gain"] <= 0:
        return "Other lessons: these did no better than the previous context."
    needs = "more than 200" if gate["needs"] is None else count(gate["needs"])
    return (
        f"If the true gain is {points(gate['gain'])} points, a gate on {needs} selection queries finds it in 4 of 5"
        f" runs; this one had {count(gate['n_queries'])}. The agent's next run can try these lessons again, and goes on"
        " from what was measured."
    )


def explained(why: str) -> str:
    """Reason behind a refusal, as a sentence; "" where the receipt is sufficient."""
    return next((text for part, text in EXPLAINED.items() if part in why), "")


def _lessons(number: int) -> str:
    return f"{count(number)} lesson{'' if number == 1 else 's'}"


# -- one epoch ---------------------------------------------------------------------------------------------------------


def _epoch(
    epoch: Mapping[str, Any], scale: float, rows: Sequence[Experience], costs: Mapping[UUID, int]
) -> dict[str, Any]:
    """An epoch with its drawn gate, the distribution of each lesson, and explained refusals."""
    gate = epoch["gate"]
    return {
        **epoch,
        "changes": epoch["changes"][-CHANGES:],
        "n_changes": len(epoch["changes"]),
        "why": [(why, n, explained(why)) for why, n in epoch["refusals"].items()],
        "asked": sum(question["asked"] for question in epoch["questions"]),
        "asked_cost_usd": sum(question["cost_usd"] for question in epoch["questions"]),
        "unusable": [(one["stage"], why, n) for one in epoch["questions"] for why, n in one["reasons"].items()],
        "where": _where(gate, rows, costs) if gate else [],
        "by_query": bool(gate and gate.get("where") and gate["lessons_each"] < len(gate["candidate"])),
        "gate_words": gain_words(gate) if gate else "",
        "outcome": outcome(gate) if gate else "",
        "search": search_words(gate) if gate else "",
        "takes": takes_words(gate) if gate else "",
        "against_start": _drawn(gate, "start", scale) if gate else None,
        "against_current": _drawn(gate, "current", scale) if gate else None,
    }


def _where(gate: Mapping[str, Any], rows: Sequence[Experience], costs: Mapping[UUID, int]) -> list[dict[str, Any]]:
    """For what queries each lesson is, by how much with the 95 % interval, and what it costs; by falling effect on all
    queries."""
    known, found = {row.handle: row for row in rows}, list[dict[str, Any]]()
    for handle, one in (gate.get("where") or {}).items():
        row, half = known.get(handle), Z * one["error"]
        own = {} if row is None else {"text": row.summary, "tokens": row.tokens, "cost_micros": costs.get(row.pk)}
        interval = {"low": one["effect"] - half, "high": one["effect"] + half}
        found.append({"text": handle, **own, **one, **interval, "word": _word(one.get("terms", ()), row)})
    return sorted(found, key=lambda one: -one["share"] * one["effect"])


def _word(terms: Sequence[int], row: Experience | None) -> str:
    """The word with one of these hashes, as the lesson or the query that taught it has it; "" where neither does."""
    words = {} if row is None else words_by_hash(f"{row.task} {row.summary}")
    return next((words[term] for term in terms if term in words), "")


def _drawn(gate: Mapping[str, Any], against: str, scale: float) -> Picture:
    """The difference with its interval, on the scale of all gates of the run."""
    value, low, high = _difference(gate, against)
    words = f"{points(value)} points" + ("" if low is None else f", {points(low)} to {points(high)}")
    return svg.whisker(value, low, high, scale, label=words)


def _difference(gate: Mapping[str, Any], against: str) -> tuple[float, float | None, float | None]:
    if against == "current":
        return gate["difference"], gate["low"], gate["high"]
    return gate["gain"], gate["seen"].get("improvement_low"), gate["seen"].get("improvement_high")


def _edges(gate: Mapping[str, Any] | None) -> list[float]:
    if gate is None:
        return []
    return [edge for against in ("start", "current") for edge in _difference(gate, against) if edge is not None]
