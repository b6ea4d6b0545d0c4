"""Reads of releases: what one serves, how two differ, where each text comes from, and what moved since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet

from agentcore_site.jobs.selectors import as_uuid
from agentcore_site.lib.errors import Conflict, Missing
from agentcore_site.tenancy.actors import Actor
from evaluation.serving.models import Release
from evaluation.serving.releases.bundle import Bundle, BundleDifference, differences, setting_differences
from evaluation.serving.releases.making import bundle_with
from experiences.learning.lessons.library import Lesson
from experiences.models import ModelEndpoint
from training.policies.served_context import ServedContext

ADDRESSES: Final = ("address", "address of its endpoint")  # names of differences


def releases_visible(actor: Any) -> QuerySet[Release]:
    """Without their bundles, of up to some 100 KB each, which are read where they are asked for."""
    rows = Release.objects.visible_to(actor).select_related("agent", "checkpoint", "created_by", "organization")
    return rows.defer("bundle", "checkpoint__data")


def release_get(actor: Any, release_id: Any) -> Release:
    """Raises:
    Missing: there is none, or it belongs to another organisation."""
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
    """What the later one serves otherwise; of the first release all that it serves."""
    nothing = Bundle(runtime="")
    return differences(bundle_of(before) if before is not None else nothing, bundle_of(after))


def address_now(bundle: Bundle) -> str:
    """Where the endpoint is now that a bundle names; "" where it names none."""
    found = ModelEndpoint.objects.filter(pk=bundle.model.endpoint or None).values_list("base_url", flat=True).first()
    return bundle.model.base_url if found is None else found


def moved_since(release: Release) -> list[BundleDifference]:
    """What the agent has now otherwise than the release: model, prompt, tools. A release is served as it was made; what
    it was proven with is not what the agent is now. So it is where the release's own endpoint moved, which it follows.

    An agent whose prompt pack was altered has no prompt: that alone is said.
    """
    try:
        now = bundle_with(release.agent, ServedContext())
    except Conflict as error:
        return [BundleDifference("prompt", "prompt pack", "changed", "", error.message)]
    made, name = bundle_of(release), ADDRESSES[1]
    address = address_now(made)
    moved = [BundleDifference("endpoint", name, "changed", made.model.base_url, address)]
    return setting_differences(made, now) + (moved if address != made.model.base_url else [])


def without_addresses(actor: Any, release: Release, found: Sequence[BundleDifference]) -> list[BundleDifference]:
    """The differences, with the addresses in them only where the actor works with endpoints."""
    if Actor.of(actor).may("data.view", release.organization_id):
        return list(found)
    return [one._replace(before="", after="") if one.name in ADDRESSES else one for one in found]


def bundle_shown(actor: Any, release: Release) -> dict[str, Any]:
    """What is served, whole; without the address of its endpoint where the actor does not work with endpoints."""
    bundle: dict[str, Any] = release.bundle
    if Actor.of(actor).may("data.view", release.organization_id):
        return bundle
    return bundle | {"model": bundle["model"] | {"base_url": ""}} if bundle.get("model") else bundle


@dataclass(frozen=True, slots=True)
class TextOrigin:
    """A text that a release tells, and the release that told it first with these words."""

    lesson: Lesson
    since: Release


def blame(release: Release) -> list[TextOrigin]:
    """Where each lesson and item of a release comes from, in their order."""
    told = bundle_of(release).context.lessons
    since = dict.fromkeys((one.handle for one in told), release)
    texts = {one.handle: one.text for one in told}
    open_ones = set(texts)
    earlier = Release.objects.filter(agent_id=release.agent_id, number__lt=release.number).order_by("-number")
    for row in earlier.iterator(chunk_size=20):
        if not open_ones:
            break
        then = {one["handle"]: one["text"] for one in row.bundle["context"]["lessons"]}
        open_ones &= {handle for handle in open_ones if then.get(handle) == texts[handle]}
        for handle in open_ones:
            since[handle] = row
    return [TextOrigin(one, since[one.handle]) for one in told]
