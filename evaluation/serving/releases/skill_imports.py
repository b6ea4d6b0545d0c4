"""Skills that arrive: what is in one, who signed it, and its lessons as proposals at an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from agentcore_site.lib.errors import Invalid, TooLarge
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import require
from evaluation.serving.releases.skill import SkillError, public_key
from evaluation.serving.releases.skill_reading import (
    CHANGED,
    UNSIGNED,
    VALID,
    ReadSkill,
    SkillTooLarge,
    fingerprint,
    skill_read,
)
from evaluation.serving.releases.skills import signing_key
from experiences.lessons.services.importing import ProposedText, record_texts, texts_proposed
from experiences.models import Agent

OTHER_KEY: Final = "other key"  # status of a valid skill that another key signed than the expected one
STATUSES: Final = (
    (VALID, "valid"),
    (CHANGED, "changed"),
    (UNSIGNED, "not signed"),
    (OTHER_KEY, "signed by another key"),
)


@dataclass(frozen=True)
class SkillKey:
    """The public key by which an organisation signs skills, in base64, with its SHA-256."""

    organization_id: UUID
    organization: str
    key: str
    fingerprint: str


@dataclass(frozen=True)
class SkillReport:
    """A skill, with what is known of its signer. ``known``: the actor named the key, or one of the actor's
    organisations (``signer``) signs by it; None for a skill that is not valid."""

    skill: ReadSkill
    status: str
    faults: tuple[str, ...]
    fingerprint: str
    known: bool | None
    signer: str

    @property
    def importable(self) -> bool:
        return not self.faults


@dataclass(frozen=True)
class SkillImported:
    report: SkillReport
    proposed: Sequence[ProposedText]


def skill_keys(actor: Actor) -> list[SkillKey]:
    """The public keys of the actor's organisations, by name."""
    found = Organization.objects.filter(pk__in=actor.organization_ids).order_by("name")
    return [_key_of(organization) for organization in found]


def _key_of(organization: Organization) -> SkillKey:
    key = public_key(signing_key(organization.pk))
    return SkillKey(organization.pk, organization.name, key, fingerprint(key))


def skill_report(actor: Actor, data: bytes, *, key: str = "") -> SkillReport:
    """Verifies a skill. ``key``: the public key in base64, or its fingerprint, that has to have signed it; "": any.

    Raises:
        Invalid: the bytes are no skill, or ``key`` is none (``fields`` says which).
        TooLarge: a limit on size or number of files is exceeded.
    """
    pinned = _pinned(key)
    try:
        skill = skill_read(data)
    except SkillTooLarge as error:
        raise TooLarge(str(error), fields={"file": str(error)}) from error
    except SkillError as error:
        raise Invalid(str(error), fields={"file": str(error)}) from error
    mark = fingerprint(skill.key)
    status, faults = skill.status, skill.faults
    if pinned and mark != pinned and not faults:
        status = OTHER_KEY if skill.status == VALID else status
        faults = ("Another key signed it." if skill.key else "It is not signed, and a key was expected.",)
    signer = next((one.organization for one in skill_keys(actor) if one.key == skill.key), "")
    known = bool(signer or (pinned and mark == pinned)) if skill.status == VALID else None
    return SkillReport(skill, status, faults, mark, known, signer)


def skill_preview(agent: Agent, report: SkillReport) -> list[ProposedText]:
    """Effects of an import at this agent; nothing is written."""
    return texts_proposed(agent, report.skill.lessons) if report.importable else []


def skill_import(actor: Actor, agent: Agent, data: bytes, *, key: str = "") -> SkillImported:
    """Puts the lessons of a skill into quarantine at an agent, with the skill as their source. What was measured
    elsewhere does not count, and nothing is imported twice.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: as for ``skill_report``; or the skill was changed, or not signed by ``key``.
        TooLarge: a limit on size, files or lessons is exceeded.
        Conflict: the agent is archived, reads no lessons, or its prompt pack was altered.
    """
    require(actor, "agent.edit", agent.organization_id)
    report = skill_report(actor, data, key=key)
    if not report.importable:
        message = f"Nothing was imported. {' '.join(report.faults)}"
        raise Invalid(message, fields={"file": message})
    skill = report.skill
    signed = f"signed by the key {report.fingerprint[:16]}" if report.fingerprint else "not signed"
    source = f"from the skill {skill.name} (SHA-256 {skill.sha256[:16]}, {signed})"
    origin = {"skill": skill.name, "sha256": skill.sha256, "signed_by": report.fingerprint}
    return SkillImported(report, record_texts(actor, skill.lessons, agent=agent, source=source, origin=origin))


def _pinned(key: str) -> str:
    """The fingerprint of a key that was given as base64 or as its fingerprint.

    Raises:
        Invalid: it is neither.
    """
    text = key.strip()
    mark = text.lower() if len(text) == 64 and all(sign in "0123456789abcdefABCDEF" for sign in text) else ""
    if text and not (mark := mark or fingerprint(text)):
        message = "A key is the public key in base64 (44 characters) or its fingerprint (64 hexadecimal digits)."
        raise Invalid(message, fields={"key": message})
    return mark
