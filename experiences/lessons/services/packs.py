"""Writes of prompt packs, and the agent's text before each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import transaction
from django.db.models import QuerySet

from agentcore_site.audit.services import archive, record
from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import Conflict, Invalid
from agentcore_site.lib.row_checks import check_row, hold_row, known_fields, save_row
from agentcore_site.lib.storable import unstorable
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import current_organization, require
from experiences.learning.lessons.pack_manifests import Manifest
from experiences.learning.lessons.stamps import pack_stamp
from experiences.lessons.stamps import pack_fault, pack_verify, sources_of, stamped
from experiences.models import Agent, Experience, PromptPack
from experiences.models.jobs_at_work import titles_at_work

EDITABLE: Final = ("name", "domain", "system", "injections", "experience_slots", "max_words")
LONGEST: Final = 200_000  # characters of all texts of a pack


def system_text(agent: Agent) -> str:
    """The text before every task: the pack's system text and injections, else the agent's own system prompt.

    Raises:
        Conflict: the pack bears no stamp, or was altered; it is named.
    """
    pack = agent.prompt_pack
    if pack is None:
        return agent.system_prompt
    pack_verify(pack)
    return "\n\n".join(text for text in (pack.system, *pack.injections) if text)


@transaction.atomic
def pack_create(actor: Actor, *, name: str, **values: Any) -> PromptPack:
    """Makes a pack in the actor's organisation, stamped: who makes it vouches for it.

    Raises:
        Missing, Forbidden: the actor may not.
        Invalid: a field is wrong (``fields`` says which).
        Conflict: the name is taken.
    """
    organization = current_organization(actor)
    require(actor, "agent.edit", organization)
    pack = PromptPack(organization=organization, created_by=Actor.of(actor).user)
    _change(pack, {"name": name, **values})
    record(actor, "prompt_pack.created", pack, after=_audited(pack))
    return pack


@transaction.atomic
def pack_update(actor: Actor, pack: PromptPack, *, keep_lessons: bool = False, **values: Any) -> PromptPack:
    """Changes a pack and stamps it again. Lessons learned under the old text are left out from then on, unless
    ``keep_lessons`` states that they hold for the new one too. Then lessons that fitted before are stamped for it, and
    so are lessons of jobs that still act by the old text (a job keeps the text of its launch).

    A pack whose texts are changed here no longer comes from its files, so its sources are forgotten.

    Raises:
        Missing, Forbidden, Invalid, Conflict: as for ``pack_create``.
    """
    require(actor, "agent.edit", pack.organization_id)
    hold_row(pack)
    if pack.archived_at is not None:
        raise Conflict(f"{pack.name} is archived.")
    before, texts = _audited(pack), (pack.system, list(pack.injections))
    fitting = _under(pack) if keep_lessons else []
    holding = [*pack.earlier_stamps, pack.stamp] if keep_lessons and not pack_fault(pack) else []
    if pack_fault(pack):  # what was altered did not come from its files; who saves it vouches for it
        pack.sources = []
    _change(pack, values, texts=texts, holding=holding)
    _stamp_again(fitting, pack.stamp)
    record(actor, "prompt_pack.changed", pack, before=before, after=_audited(pack) | {"lessons_kept": len(fitting)})
    return pack


@transaction.atomic
def pack_archive(actor: Actor, pack: PromptPack) -> PromptPack:
    """Takes a pack out of use.

    Raises:
        Missing, Forbidden: the actor may not.
        Conflict: agents use it, or a job that has not ended.
    """
    require(actor, "agent.edit", pack.organization_id)
    users = list(pack.agents.filter(archived_at=None).values_list("name", flat=True)[:3])
    if users:
        raise Conflict(f"{', '.join(users)} use it. Give them another pack, or a system prompt, first.")
    if titles := titles_at_work(Job.objects.filter(training_run__prompt_pack=pack)):
        raise Conflict(f"{titles}: not ended, and launched with it. Let it end, or cancel it, first.")
    archive(actor, pack, "prompt_pack.archived")
    return pack


@transaction.atomic
def packs_load(actor: Actor | None, organization: Organization, manifests: Sequence[Manifest]) -> dict[str, str]:
    """Puts packs that were read from files into an organisation, under their ids as names; all or none.

    Gives for each what came of it: "new", "changed" or "same". ``actor`` is None for the site's own command line.

    Raises:
        Invalid: a value is wrong; the manifest's path is named.
    """
    found = {}
    for manifest in manifests:
        try:
            found[manifest.id] = _load(actor, organization, manifest)
        except Invalid as error:
            raise Invalid(f"{manifest.path}: {error.message}", fields=error.fields) from error
    return found


def packs_restamp(packs: Sequence[PromptPack]) -> None:
    """Stamps packs whose texts were lawfully changed, and the lessons that fitted before. Called with the old stamps
    in the database and the new texts in the rows."""
    for pack in packs:
        fitting = _under(PromptPack.objects.get(pk=pack.pk))
        pack.stamp = pack_stamp(pack.system, pack.injections, sources_of(pack))
        pack.save(update_fields=["system", "injections", "sources", "stamp"])
        _stamp_again(fitting, pack.stamp)


def prompt_replace(agent: Agent, prompt: str) -> None:
    """Puts another system prompt in the place of one that was lawfully changed; the lessons that fitted it fit on."""
    alone = agent.prompt_pack_id is None
    fitting = _bearing(Experience.objects.filter(agent=agent), pack_stamp(agent.system_prompt)) if alone else []
    Agent.objects.filter(pk=agent.pk).update(system_prompt=prompt)
    _stamp_again(fitting, pack_stamp(prompt))


# -- how ---------------------------------------------------------------------------------------------------------------


def _load(actor: Actor | None, organization: Organization, manifest: Manifest) -> str:
    rows = PromptPack.objects.select_for_update(no_key=True).filter(organization=organization, archived_at=None)
    pack = rows.filter(name=manifest.id).first()
    fresh = pack is None
    pack = pack or PromptPack(organization=organization)
    before = _audited(pack)
    values = {
        "name": manifest.id,
        "domain": manifest.domain,
        "system": manifest.system,
        "injections": list(manifest.inject),
        "experience_slots": manifest.experience_slots,
        "max_words": manifest.max_words,
    }
    sources = [source.as_dict() for source in manifest.sources]
    same = pack.stamp == manifest.stamp and not pack_fault(pack) and before == _shown_of(values, manifest.stamp)
    if same and not fresh:
        return "same"
    pack.sources = sources
    _change(pack, values)
    record(actor, "prompt_pack.loaded", pack, before=None if fresh else before, after=_audited(pack))
    return "new" if fresh else "changed"


def _change(
    pack: PromptPack,
    values: Mapping[str, Any],
    *,
    texts: tuple[str, list[str]] | None = None,
    holding: Sequence[str] = (),
) -> None:
    """``texts``: those that it had, where its sources replace them; ``holding``: stamps of texts whose lessons hold
    for another one too."""
    for name, value in known_fields(values, EDITABLE).items():
        setattr(pack, name, value.strip() if name in ("name", "domain") and isinstance(value, str) else value)
    _check(pack)
    if texts is not None and texts != (pack.system, list(pack.injections)):
        pack.sources = []
    stamp = pack_stamp(pack.system, pack.injections, sources_of(pack))
    if stamp != pack.stamp:
        pack.stamp, pack.earlier_stamps = stamp, [one for one in holding if one != stamp]
    save_row(pack, unique="name", taken=f"There is already a prompt pack called {pack.name!r}. Choose another name.")


def _check(pack: PromptPack) -> None:
    """Raises:
    Invalid: a field is wrong."""
    if not isinstance(pack.injections, list) or not all(isinstance(injection, str) for injection in pack.injections):
        raise Invalid("injections is a list of texts.", fields={"injections": "A list of texts."})
    if why := unstorable([pack.system, *pack.injections]):
        raise Invalid(f"Its texts can't be stored: {why}.", fields={"system": f"It can't be stored: {why}."})
    if not pack.system.strip() and not any(injection.strip() for injection in pack.injections):
        message = "Write a system text, or an instruction."
        raise Invalid(message, fields={"system": message})
    if len(pack.system) + sum(map(len, pack.injections)) > LONGEST:
        message = f"Its texts are longer than {LONGEST:,} characters."
        raise Invalid(message, fields={"system": message})
    if not 1 <= (pack.max_words or 0) <= 200:
        message = "A lesson has between 1 and 200 words."
        raise Invalid(message, fields={"max_words": message})
    check_row(pack, exclude=["organization", "created_by", "stamp", "earlier_stamps"])


def _under(pack: PromptPack) -> list[Experience]:
    """The lessons, of any agent, that bear the present stamp of the pack."""
    mine = Experience.objects.filter(organization_id=pack.organization_id)
    return [] if pack_fault(pack) else _bearing(mine, pack.stamp)


def _bearing(experiences: QuerySet[Experience], stamp: str) -> list[Experience]:
    """Lessons that were learned, or approved, under the prompt with this stamp."""
    return [experience for experience in experiences if experience.stamp == stamped(experience, stamp)]


def _stamp_again(experiences: Sequence[Experience], stamp: str) -> None:
    for experience in experiences:
        experience.stamp = stamped(experience, stamp)
    Experience.objects.bulk_update(experiences, ["stamp"])


def _audited(pack: PromptPack) -> dict[str, Any]:
    """For the audit log: all but the texts, which their stamp identifies."""
    return _shown_of({name: getattr(pack, name) for name in EDITABLE}, pack.stamp)


def _shown_of(values: Mapping[str, Any], stamp: str) -> dict[str, Any]:
    named = {name: values[name] for name in EDITABLE if name not in ("system", "injections")}
    return named | {"stamp": stamp}
