"""The console's menu as data: where each entry leads, who sees it, and on which pages it is the current one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

STAFF: Final = "staff"  # not an action of a role: people who may open Django's admin


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``icon``: "" for an entry below another one. ``pages``: a regular expression for the beginning of the
    paths on which the entry is current; "" for links out of the console. ``needs``: the action that its reader must be
    allowed, ``STAFF``, or "" for all. ``review``: the entry shows how much waits for a review."""

    label: str
    url_name: str
    icon: str
    pages: str
    needs: str = ""
    review: bool = False

    def is_current(self, path: str) -> bool:
        """Whether a page at this path belongs to the entry."""
        return bool(self.pages) and re.match(self.pages, path) is not None

    def is_shown(self, may: Collection[str], *, staff: bool) -> bool:
        """``may``: the actions that the person is allowed."""
        return staff if self.needs == STAFF else not self.needs or self.needs in may


PLACES: Final = (
    Entry("Overview", "overview", "overview", r"/$"),
    Entry("Summary", "summary", "", r"/summary/"),
    Entry("Agents", "agents", "agents", r"/agents/(?![^/]+/(playbook|serving|loop|return)/)"),
    Entry("Playground", "serving:playground", "", r"/playground/", needs="gateway.call"),
    Entry("Jobs", "training:jobs", "jobs", r"/(jobs|checkpoints)/"),
    Entry("Share links", "share_links", "", r"/share-links/", needs="share.edit"),
    Entry("Datasets", "training:datasets", "", r"/datasets/"),
    Entry("Trajectories", "experiences:trajectories", "trajectories", r"/trajectories/", needs="data.view"),
    Entry("Exports", "experiences:exports", "", r"/exports/", needs="export"),
    Entry("Evaluations", "evaluation:evaluations", "evaluations", r"/(evaluations|grader)/"),
    Entry("Suites", "serving:suites", "suites", r"/suite(s|-runs)/"),
    Entry("Releases", "serving:releases", "releases", r"/(releases|skills)/"),
    Entry("Deployments", "serving:deployments", "", r"/(deployments|agents/[^/]+/(serving|loop|return))/"),
    Entry("Traces", "serving:traces", "answer", r"/traces/", needs="data.view"),
    Entry("API keys", "serving:keys", "", r"/keys/"),
    Entry("Events", "events:publishers", "", r"/events/"),
    Entry("Lessons", "experiences:library", "learned", r"/(experiences|prompt-packs)/"),
    Entry("Playbooks", "experiences:playbooks", "", r"/(playbooks|agents/[^/]+/playbook|evolutions|executions)/"),
    Entry("Review queue", "experiences:reviews", "", r"/reviews/", review=True),
    Entry("Dashboards", "warehouse:dashboards", "dashboards", r"/dashboards/"),
    Entry("Budgets", "budgets:budgets", "budgets", r"/budgets/", needs="budget.view"),
)
ADMINISTRATION: Final = (
    Entry("People", "people", "person", r"/people/", needs="members.edit"),
    Entry("Audit log", "audit", "audit", r"/audit/", needs="audit.view"),
    Entry("Webhooks", "webhooks", "share", r"/webhooks/", needs="webhook.edit"),
    Entry("Storage", "experiences:archives", "storage", r"/archives/", needs="retention.run"),
    Entry("Encryption", "encryption", "", r"/encryption/", needs="encryption.edit"),
    Entry("System", "system", "info", r"/system/$", needs=STAFF),
    Entry("Admin", "admin:index", "admin", "", needs=STAFF),
)
# Entries of the command palette besides the menu: pages that create something.
ACTIONS: Final = (
    Entry("Get started", "get_started", "", "", needs="agent.edit"),
    Entry("Launch training", "training:launch", "", "", needs="run.start"),
    Entry("Upload a dataset", "training:dataset_new", "", "", needs="dataset.edit"),
    Entry("New agent", "experiences:agent_new", "", "", needs="agent.edit"),
    Entry("New model endpoint", "experiences:endpoint_new", "", "", needs="endpoint.edit"),
    Entry("New tool server", "experiences:tool_server_new", "", "", needs="endpoint.edit"),
    Entry("New prompt pack", "experiences:prompt_pack_new", "", "", needs="agent.edit"),
    Entry("Verify or import a skill", "serving:skills", "", ""),
    Entry("New suite", "serving:suite_new", "", "", needs="suite.edit"),
    Entry("New budget", "budgets:new", "", "", needs="budget.edit"),
    Entry("New webhook", "webhook_new", "", "", needs="webhook.edit"),
    Entry("Notifications", "notices", "", ""),
    Entry("Notification settings", "notice_settings", "", ""),
    Entry("Compare jobs", "evaluation:compare", "", ""),
    Entry("Settings and gains of jobs", "evaluation:landscape", "", ""),
    Entry("Checkpoints", "training:checkpoints", "", ""),
    Entry("Model endpoints", "experiences:endpoints", "", "", needs="data.view"),
    Entry("Tool servers", "experiences:tool_servers", "", "", needs="data.view"),
    Entry("Prompt packs", "experiences:prompt_packs", "", ""),
    Entry("Reconcile a bill", "budgets:reconcile", "", "", needs="export"),
    Entry("Prices of models", "budgets:prices", "", "", needs="budget.view"),
)
# Names of pages by the names of their addresses.
LABELS: Final = {entry.url_name: entry.label for entry in (*ACTIONS, *ADMINISTRATION, *PLACES)}


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """An entry as one page shows it. ``waiting``: how many changes and lessons wait for its reader; 0 shows nothing."""

    entry: Entry
    is_current: bool
    waiting: int


def menu(path: str, may: Collection[str], *, staff: bool, waiting: Callable[[], int]) -> list[list[ShownEntry]]:
    """The sections of the menu, each with at least one entry, for a page at ``path``. ``waiting`` is called only if its
    result is shown."""
    sections = [
        [entry for entry in section if entry.is_shown(may, staff=staff)] for section in (PLACES, ADMINISTRATION)
    ]
    return [[_shown_entry(entry, path, may, waiting) for entry in section] for section in sections if section]


def _shown_entry(entry: Entry, path: str, may: Collection[str], waiting: Callable[[], int]) -> ShownEntry:
    asked = entry.review and "playbook.edit" in may
    return ShownEntry(entry, entry.is_current(path), waiting() if asked else 0)
