"""Builds bundles from rows: an agent's current state, a checkpoint, or a version of its playbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.registry import UnknownName
from evaluation.reports import verdict_of
from evaluation.selectors import evaluation_proving
from evaluation.serving.models import AgentServing, Release
from evaluation.serving.releases.bundle import Bundle, ModelPart, PlayPart, PolicyPart, ToolServerPart
from experiences.lessons.services.packs import system_text
from experiences.models import Agent, AgentRuntime, Philosophy, Playbook
from experiences.playbooks.selectors import sections_of
from experiences.rollouts.environments.base import is_a_world
from experiences.rollouts.own_weights import weights_of
from experiences.rollouts.runtimes.llm.prompts import INSTRUCTIONS
from training.checkpoint_bytes import checkpoint_load
from training.learners import stored_policy
from training.models import PolicyCheckpoint, TrainingRun
from training.policies.archive import CorruptState
from training.policies.context import ContextPolicy
from training.policies.served_context import ServedContext
from training.services import checkpoints
from training.services.run_lessons import context_of_agent
from training.services.starting_points import acts_by

PROVEN = ("verdict", "changed", "improvement", "low", "high", "p_value", "success_rate", "baseline", "n_queries")


def bundle_of_agent(agent: Agent) -> Bundle:
    """An agent of a language model in its current state.

    Raises:
        Conflict: its prompt pack was altered.
    """
    return bundle_with(agent, context_of_agent(agent))


def bundle_of_playbook(agent: Agent, playbook: Playbook, version: int) -> Bundle:
    """The agent with the items of that version of its playbook. An agent that chooses actions keeps the parameters of
    its current release: its services read the playbook, and its policy does not.

    Raises:
        Missing: there is no such version.
        Conflict: its prompt pack was altered.
    """
    bundle = bundle_with(agent, context_of_agent(agent, sections_of(playbook, version)))
    serving = AgentServing.objects.filter(agent=agent).select_related("release").first()
    if agent.runtime != AgentRuntime.ACTION or serving is None or serving.release is None:
        return bundle
    return replace(bundle, policy=Bundle.from_json(serving.release.bundle).policy)


def bundle_of_checkpoint(checkpoint: PolicyCheckpoint) -> Bundle:
    """The agent as the checkpoint's run trained it: the prompt of the run (of the agent for an uploaded checkpoint),
    and the agent's current model and tools (``evidence_of`` lists those that differ from the run's).

    Raises:
        Conflict: the checkpoint can't be read, or the agent's prompt pack was altered.
        ObjectsUnavailable: the object storage is unavailable.
    """
    run = checkpoint.run
    agent = checkpoint.agent if run is None else run.acting_agent
    try:
        stored = stored_policy(checkpoint_load(checkpoint))
    except (CorruptState, UnknownName) as error:
        raise Conflict(f"{checkpoint.label} can't be read: {error}") from error
    if stored.learner.learns_context:
        context = replace(cast(ContextPolicy, stored.policy).serves, version=checkpoint.label)
        return bundle_with(agent, context, run)
    if weights := weights_of(stored.policy):  # they were trained and proven with the prompt alone, without context
        bundle = bundle_with(agent, ServedContext(version=checkpoint.label), run)
        bundle = replace(bundle, model=replace(bundle.model, name=f"{bundle.model.name}@{weights.digest}"))
    else:
        bundle = bundle_with(agent, replace(context_of_agent(agent), version=checkpoint.label), run)
    return replace(bundle, policy=PolicyPart(str(checkpoint.pk), checkpoint.sha256))


def evidence_of(checkpoint: PolicyCheckpoint, released: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Measurements of exactly these bytes: the proof on held-out queries if there is one, and the scores on selection
    queries. {} for an uploaded checkpoint without evaluation.

    ``moved`` names what differs from the measured agent: model, tools or prompt. A proof of another model is none.
    ``released`` has the fingerprints of the release (``acts_by``), and is the agent's present ones if left out.
    """
    own, evaluation = checkpoint.run, evaluation_proving(checkpoint)
    run = evaluation.run if evaluation is not None else own
    if run is None:
        return {}
    proven = verdict_of(evaluation) if evaluation is not None else {}
    if own is not None and own.verdict.get("changed") is False and checkpoints.best(own) == checkpoint:
        proven = own.verdict  # it equals the policy at the start, so that no query was asked
    validated = own is not None and own.selection.get("iteration") == checkpoint.iteration
    then = (evaluation.acts_by if evaluation is not None else {}) or run.origin.get("acts_by", {})
    now = released or (acts_by(checkpoint.agent if own is None else own.acting_agent) if then else {})
    moved = sorted(name for name, value in then.items() if now.get(name) != value)
    return {
        "job": str(run.job_id),
        "iteration": checkpoint.iteration,
        "sha256": checkpoint.sha256,
        "acts_by": dict(now),
        "held_out": {name: proven[name] for name in PROVEN if name in proven and not moved},
        "selection": dict(run.selection) if validated else {},
        "validation_score": checkpoint.validation_score,
        "moved": moved,
    }


def known_of(release: Release) -> dict[str, Any]:
    """The evidence on a release as of now: a proof of its bytes that came after the release counts. Releases of earlier
    versions of AgentCore, whose evidence names no bytes, are looked up again."""
    stored: dict[str, Any] = release.evidence
    checkpoint = release.checkpoint
    proven_since = getattr(release, "proven", True)  # lists read it with their rows
    if checkpoint is None or (stored.get("sha256") and (stored["held_out"] or not proven_since)):
        return stored
    if stored.get("sha256", checkpoint.sha256) != checkpoint.sha256:
        return stored  # an erasure rewrote the checkpoint since: what is known of its new bytes is no evidence here
    return evidence_of(checkpoint, stored.get("acts_by"))


def bundle_with(agent: Agent, context: ServedContext, run: TrainingRun | None = None) -> Bundle:
    """The agent's current model, prompt and tools, with this context, as ``run`` played it.

    Raises:
        Conflict: its prompt pack was altered.
    """
    if agent.runtime == AgentRuntime.ACTION:  # it calls no model and reads no prompt
        return Bundle(runtime=agent.runtime, philosophy=agent.philosophy, tools=tuple(agent.tools), context=context)
    endpoint = agent.endpoint
    model = ModelPart(name=agent.model, max_tokens=agent.max_tokens)
    if endpoint is not None:
        model = ModelPart(
            name=agent.model or endpoint.model,
            endpoint=str(endpoint.pk),
            endpoint_name=endpoint.name,
            kind=endpoint.kind,
            base_url=endpoint.base_url,
            options=endpoint.options,
            max_tokens=agent.max_tokens,
        )
    granted = [(server, tools) for server, tools in agent.server_tools if server.archived_at is None]
    return Bundle(
        runtime=agent.runtime,
        philosophy=agent.philosophy,
        model=model,
        system=system_text(agent),
        tools=tuple(agent.tools),
        servers=tuple(ToolServerPart(str(server.pk), server.name, tuple(sorted(tools))) for server, tools in granted),
        context=context,
        play=_play_of(agent, run),
    )


def _play_of(agent: Agent, run: TrainingRun | None) -> PlayPart | None:
    """The agent's play: as its run measured it, else as its current release has it, else the defaults."""
    if agent.runtime != AgentRuntime.LLM:
        return None
    environment = agent.environment if run is None else run.environment
    play = PlayPart(
        instructions=INSTRUCTIONS.of(agent.philosophy),
        world=environment if agent.philosophy != Philosophy.CHAT and is_a_world(environment) else "",
    )
    if run is not None:
        config = run.configuration
        return replace(
            play,
            temperature=config.eval_temperature,
            max_steps=config.max_steps,
            seconds=config.rollout_timeout_seconds,
        )
    serving = AgentServing.objects.filter(agent=agent).select_related("release").first()
    served = Bundle.from_json(serving.release.bundle) if serving is not None and serving.release is not None else None
    if served is None or served.play is None or served.philosophy != agent.philosophy:
        return play
    return replace(served.play, instructions=play.instructions)
