"""Reads of releases: contents, differences, origins of texts, and changes of the agent since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Exists, OuterRef, QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.selectors import proofs
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle import Bundle, BundleDifference, differences, setting_differences
from evaluation.serving.releases.bundle_builder import bundle_with
from experiences.learning.lessons.library import Lesson
from experiences.models import ModelEndpoint
from training.policies.served_context import ServedContext

ADDRESSES: Final = ("address", "address of its endpoint")  # names of differences


def releases_visible(actor: Actor) -> QuerySet[Release]:
    """Visible releases, with their bundles deferred: up to some 100 KB each."""
    rows = Release.objects.visible_to(actor).select_related("agent", "checkpoint", "created_by", "organization")
    proven = Exists(proofs(agent_id=OuterRef("agent_id"), sha256=OuterRef("checkpoint__sha256")))
    return rows.defer("bundle", "checkpoint__data").annotate(proven=proven)


def release_get(actor: Actor, release_id: Any) -> Release:
    """Raises:
    Missing: no such release is visible to the actor."""
    found = releases_visible(actor).filter(id=as_uuid(release_id, "release")).first()
    if found is None:
        raise Missing(f"There is no release {str(release_id)[:60]}.")
    return found


def bundle_of(release: Release) -> Bundle:
    return Bundle.from_json(release.bundle)


def release_before(release: Release) -> Release | None:
    """The agent's release before this one."""
    return Release.objects.filter(agent_id=release.agent_id, number__lt=release.number).order_by("-number").first()


def releases_differ(before: Release | None, after: Release) -> list[BundleDifference]:
    """The differences of the later release; all contents of a first release."""
    nothing = Bundle(runtime="")
    return differences(bundle_of(before) if before is not None else nothing, bundle_of(after))


def address_now(bundle: Bundle) -> str:
    """The current address of the bundle's endpoint; "" if it has none."""
    found = ModelEndpoint.objects.filter(pk=bundle.model.endpoint or None).values_list("base_url", flat=True).first()
    return bundle.model.base_url if found is None else found


def moved_since(release: Release) -> list[BundleDifference]:
    """Changes of the agent since the release: model, prompt, tools, and the address of the release's endpoint. A
    release is served as it was made, but it follows its endpoint, so that its proof may be of another state. An agent
    with an altered prompt pack has no prompt: then only that change is returned.
    """
    try:
        now = bundle_with(release.agent, ServedContext())
    except Conflict as error:
        return [BundleDifference("prompt", "prompt pack", "changed", "", error.message)]
    made, name = bundle_of(release), ADDRESSES[1]
    address = address_now(made)
    moved = [BundleDifference("endpoint", name, "changed", made.model.base_url, address)]
    return setting_differences(made, now) + (moved if address != made.model.base_url else [])


def without_addresses(actor: Actor, release: Release, found: Sequence[BundleDifference]) -> list[BundleDifference]:
    """The differences; addresses only for an actor who works with endpoints."""
    if Actor.of(actor).may("data.view", release.organization_id):
        return list(found)
    return [one._replace(before="", after="") if one.name in ADDRESSES else one for one in found]


def bundle_shown(actor: Actor, release: Release) -> dict[str, Any]:
    """The whole bundle; the endpoint's address only for an actor who works with endpoints."""
    bundle: dict[str, Any] = release.bundle
    if Actor.of(actor).may("data.view", release.organization_id):
        return bundle
    return bundle | {"model": bundle["model"] | {"base_url": ""}} if bundle.get("model") else bundle


@dataclass(frozen=True, slots=True)
class TextOrigin:
    """A text of a release, and the first release with exactly this text."""

    lesson: Lesson
    since: Release


def blame(release: Release) -> list[TextOrigin]:
    """The origin of each lesson and item of a release, in their order."""
    lessons = bundle_of(release).context.lessons
    since = dict.fromkeys((lesson.handle for lesson in lessons), release)
    texts = {lesson.handle: lesson.text for lesson in lessons}
    open_ones = set(texts)
    earlier = Release.objects.filter(agent_id=release.agent_id, number__lt=release.number).order_by("-number")
    for row in earlier.iterator(chunk_size=20):
        if not open_ones:
            break
        then = {lesson["handle"]: lesson["text"] for lesson in row.bundle["context"]["lessons"]}
        open_ones &= {handle for handle in open_ones if then.get(handle) == texts[handle]}
        for handle in open_ones:
            since[handle] = row
    return [TextOrigin(lesson, since[lesson.handle]) for lesson in lessons]
