"""Algorithm ``gepa`` of the learner of contexts: GEPA proposes lists of lessons, and the run's own engine plays them.

One iteration is one evaluation that GEPA asks for: its queries are played with its text, which is a list of lessons,
one a line. The question that GEPA asks about these rollouts is put to the run's reflector in the same iteration.
GEPA's validation queries are training queries. The selection queries stay the gate's, the held-out ones the proof's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from experiences.learning.lessons.attempts import name_of
from experiences.learning.lessons.library import Lesson, Library, line_tokens, new_handle
from experiences.learning.lessons.operations import OperationRules, Receipt
from experiences.learning.lessons.reflection import Reflected
from experiences.learning.lessons.similarity import ALIKE, most_alike
from experiences.rollouts.types import Trajectory, TrajectoryGroup
from training.algorithm.gepa_search import Evaluation, Rewriting, Search, Standing
from training.policies.context import ContextPolicy
from training.policies.query_rule import Choice
from training.policies.served_context import ServedContext
from training.schema import GRPOConfig
from training.trainer.setup import TrainerSetup

MOST_TAUGHT: Final = 64  # rollouts that a lesson names as its origin
PARTIAL: Final = 0.99  # the score of a rollout without success is below this


def is_gepa(config: GRPOConfig) -> bool:
    return config.algorithm == "gepa"


def rollouts_of(config: GRPOConfig, n_train: int) -> int:
    """The most rollouts that the search plays: as many as the other algorithms play with these settings."""
    return config.n_iterations * min(config.batch_size, max(n_train, 1)) * config.n_trajectories_per_query


def standing(setup: TrainerSetup, policy: ContextPolicy) -> Standing:
    """Progress of the search after the policy's answers. Replayed once for each number of answers."""
    return _standing(setup, policy, policy.answers)


def context(setup: TrainerSetup, policy: ContextPolicy) -> ServedContext:
    """The context that the next evaluation plays."""
    return ServedContext(tuple(_lessons(setup, policy, _evaluation(setup, policy).text)), version=policy.version)


def queries(setup: TrainerSetup, policy: ContextPolicy) -> list[int]:
    """Positions of the queries of the next evaluation."""
    return list(_evaluation(setup, policy).queries)


def is_spent(setup: TrainerSetup, policy: ContextPolicy) -> bool:
    """True if the next evaluation would play more rollouts than the settings allow."""
    played = sum(len(answer) for answer in policy.answers if not isinstance(answer, dict))
    wanted = played + len(_evaluation(setup, policy).queries)
    return wanted * setup.config.n_trajectories_per_query > rollouts_of(setup.config, len(setup.train))


async def reflect(
    setup: TrainerSetup, policy: ContextPolicy, groups: Sequence[TrajectoryGroup], iteration: int
) -> Reflected:
    """The answer to GEPA's question about these rollouts; empty where it has none: lessons that these rollouts prove
    get their receipts there. Leaves the policy unchanged.

    Raises:
        Halted: as ``Reflecting.rewrite``.
    """
    asks = _standing(setup, policy, [*policy.answers, scores(groups)]).asks
    if not isinstance(asks, Rewriting) or setup.reflecting is None:
        return Reflected()
    found = await setup.reflecting.rewrite(groups, asks.text.splitlines(), iteration=iteration)
    return Reflected(groups=len(groups), compared=len(groups), rewritten=found)


def learn(
    setup: TrainerSetup,
    policy: ContextPolicy,
    groups: Sequence[TrajectoryGroup],
    reflected: Reflected | None,
    rules: OperationRules,
    iteration: int,
) -> None:
    """Records the answers, and takes over the best text so far: its lessons are the live ones of the library. Receipts
    of refused and of new lessons are added to ``reflected``."""
    asks = _standing(setup, policy, [*policy.answers, scores(groups)]).asks
    policy.answers.append(scores(groups))
    if isinstance(asks, Rewriting):
        policy.answers.append(_answer(setup, asks.text, groups, reflected, rules, iteration))
    found = standing(setup, policy)
    receipts = _take(setup, policy, found)
    if reflected is not None:
        reflected.receipts += receipts


def scores(groups: Sequence[TrajectoryGroup]) -> list[float]:
    """The mean score of each query's rollouts: 1 for a success, else the reward within [0, 1)."""
    return [sum(map(_score, group.trajectories)) / max(len(group.trajectories), 1) for group in groups]


def _score(trajectory: Trajectory) -> float:
    if trajectory.success:
        return 1.0
    return min(max(trajectory.reward, 0.0), PARTIAL) if math.isfinite(trajectory.reward) else 0.0


def _search(setup: TrainerSetup) -> Search:
    """Validation queries are spread over the training queries, and no more than a fourth of the rollouts pays for."""
    n, size = len(setup.train), setup.config.n_trajectories_per_query
    wanted = min(len(setup.search_queries), max(1, rollouts_of(setup.config, n) // (4 * size)))
    validation = tuple(at * n // wanted for at in range(wanted))
    train = tuple(sorted(set(range(n)) - set(validation))) or validation
    start = "\n".join(lesson.text for lesson in setup.library.live if lesson.kind != "section")
    return Search(start, train, validation, setup.config.context.reflect_groups, setup.seed)


def _standing(setup: TrainerSetup, policy: ContextPolicy, answers: Sequence[Any]) -> Standing:
    plain = [answer["text"] if isinstance(answer, dict) else answer for answer in answers]
    key = repr(plain)
    if policy.replayed is None or policy.replayed[0] != key:
        policy.replayed = key, _search(setup).standing(plain)
    found: Standing = policy.replayed[1]
    return found


def _evaluation(setup: TrainerSetup, policy: ContextPolicy) -> Evaluation:
    asks = standing(setup, policy).asks
    assert isinstance(asks, Evaluation)  # a rewriting is answered in the iteration of its rollouts
    return asks


def _lessons(setup: TrainerSetup, policy: ContextPolicy, text: str) -> list[Lesson]:
    """The lessons of a text: those of the library in its order, and then new ones. Sections of the playbook are in each
    context, since their owner alone changes them."""
    wanted = dict.fromkeys(text.splitlines())
    known = [one for one in policy.library if one.text in wanted or (one.kind == "section" and one.live)]
    new = [line for line in wanted if line not in {lesson.text for lesson in known}]
    return [replace(one, status="proposed") for one in known] + [_new(setup, policy, line) for line in new]


def _new(setup: TrainerSetup, policy: ContextPolicy, text: str) -> Lesson:
    """The lesson of a line that GEPA wrote, with the rollouts that it read."""
    written = (answer for answer in policy.answers if isinstance(answer, dict) and text in answer["text"].splitlines())
    origin = next(written, {})
    return Lesson(
        new_handle(setup.policy_version_prefix, "gepa", text),
        text,
        epoch=origin.get("epoch", 1),
        domain=origin.get("domain", ""),
        taught_by=tuple(origin.get("taught_by", ())),
    )


def _answer(
    setup: TrainerSetup,
    before: str,
    groups: Sequence[TrajectoryGroup],
    reflected: Reflected | None,
    rules: OperationRules,
    iteration: int,
) -> dict[str, Any]:
    """The answer to a rewriting, for the record: the lines that may be tried, "" where these are the old ones."""
    kept: list[str] = []
    rewritten = None if reflected is None else reflected.rewritten
    if reflected is not None and rewritten is not None:
        old, most = set(before.splitlines()), _most(setup, rules)
        for text, fault in rewritten.texts:
            why = fault or ("" if text in old else _why_not(text, kept, rules))
            tokens = sum(map(line_tokens, (*kept, text)))
            if not why and (len(kept) >= most or tokens > rules.max_tokens):
                why = "the context has no room for it"
            if why:
                reflected.receipts.append(Receipt("ADD", False, why[:300], text=text[:400]))
            else:
                kept.append(text)
    text = "\n".join(kept)
    return {
        "text": "" if set(kept) == set(before.splitlines()) else text,
        "epoch": setup.epoch(iteration),
        "domain": "" if rewritten is None else rewritten.domain,
        "taught_by": [name_of(one) for group in groups for one in group.trajectories][:MOST_TAUGHT],
    }


def _most(setup: TrainerSetup, rules: OperationRules) -> int:
    return rules.max_items if setup.slots is None else min(rules.max_items, setup.slots)


def _why_not(text: str, beside: Sequence[str], rules: OperationRules) -> str:
    """Why a new line is not tried; "" if it is. What looks like an order to a model is not."""
    if why := rules.distrust(text) or rules.memory.why_not(text):
        return why
    return "another line says the same" if most_alike(text, beside)[1] >= ALIKE else ""


def _take(setup: TrainerSetup, policy: ContextPolicy, found: Standing) -> list[Receipt]:
    """Makes the lessons of the best text the live ones. A receipt for each that is new in the library."""
    lessons = _lessons(setup, policy, found.best)
    chosen = tuple(lesson.handle for lesson in lessons)
    if chosen == policy.kept and {one.handle for one in policy.library.live} == set(chosen):
        return []
    new = [lesson for lesson in lessons if lesson.handle not in policy.library.position]
    library = Library((*policy.library, *new))
    gone = [one.handle for one in library if one.handle not in chosen and one.live]
    back = [one.handle for one in library if one.handle in chosen and one.status == "pruned"]
    policy.take(library.moved(gone, "pruned").moved(back, "proposed"))
    policy.keep(Choice(chosen))
    why = f"with it the context scores {found.score:.2f} on the validation queries, more than any before"
    return [Receipt("ADD", True, why, lesson.handle, lesson.text[:400]) for lesson in new]
