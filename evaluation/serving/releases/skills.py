"""Releases as signed skills: the organisation's key, and the facts that a skill has of its release."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from agentcore_site.lib.errors import Conflict
from agentcore_site.lib.figures import minus
from agentcore_site.lib.money_format import money
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle_builder import known_of
from evaluation.serving.releases.presenters import proof_of
from evaluation.serving.releases.selectors import bundle_of
from evaluation.serving.releases.skill import Skill, skill_archive, skill_name

PURPOSE: Final = "agentcore/skill/v1/"


def signing_key(organization_id: UUID) -> Ed25519PrivateKey:
    """The key by which an organisation signs skills. It is derived from ``SECRET_KEY`` (HKDF, RFC 5869), so that it is
    stored nowhere; a new ``SECRET_KEY`` gives a new key, and what was signed before stays verifiable by its own."""
    derived = HKDF(SHA256(), 32, None, f"{PURPOSE}{organization_id}".encode())
    return Ed25519PrivateKey.from_private_bytes(derived.derive(settings.SECRET_KEY.encode()))


def release_skill(release: Release) -> tuple[str, bytes]:
    """(name of the file, the signed archive).

    Raises:
        Conflict: the release has no texts that a skill could hold.
    """
    bundle = bundle_of(release)
    lessons = [lesson.text for lesson in bundle.context.lessons]
    if not lessons and not bundle.system.strip():
        raise Conflict("This release has neither a prompt nor lessons, so that there is nothing for a skill.")
    name = skill_name(f"{release.agent.slug}-{release.number}")
    skill = Skill(name, _description(release, len(lessons)), bundle.system, lessons, _facts(release))
    return f"{name}.zip", skill_archive(skill, signing_key(release.organization_id))


def _description(release: Release, lessons: int) -> str:
    learned = f"{lessons} measured lesson{'' if lessons == 1 else 's'}"
    objective = release.agent.objective or f"Use when a task is of the kind that {release.agent.name} works on."
    return f"Prompt and {learned} of {release.agent.name}, release {release.number}. {objective}"


def _facts(release: Release) -> dict[str, str]:
    """Facts on a release by name, those that are known."""
    bundle, proof = bundle_of(release), known_of(release).get("held_out", {})
    run = release.checkpoint.run if release.checkpoint is not None else None
    found = {
        "agentcore-digest": release.digest,
        "agentcore-release": str(release.number),
        "agentcore-date": release.created_at.isoformat(),
        "agentcore-model": bundle.model.name,
        "agentcore-proof": proof_of(release).text,
    }
    if proof.get("low") is not None:
        low, gain, high = (100 * proof[part] for part in ("low", "improvement", "high"))
        found["agentcore-gain"] = minus(f"{gain:.1f} points (95 % interval {low:.1f} to {high:.1f})")
    if bundle.context.rule is not None:
        found["agentcore-rule"] = "Each query was given some of these lessons; a skill gives all of them."
    if run is not None:
        found["agentcore-cost"] = money(run.spent_micros)
        if run.dataset is not None:
            found["agentcore-data-sha256"] = run.dataset.sha256
        gates = run.epochs.filter(gate__isnull=False).order_by("-number").values_list("gate", flat=True)
        if (gate := gates.first()) is not None:
            decided = "accepted" if gate.get("accepted") else "refused"
            found["agentcore-gate"] = f"{decided} on {gate['n_queries']} selection queries, p = {gate['p_value']:.4f}"
    return {name: value for name, value in found.items() if value}
