"""Celery task of the seals."""

from __future__ import annotations

from celery import shared_task

from agentcore_site.audit.sealing import AT_ONCE, seal, tables


@shared_task(name="audit.seal")
def seal_all() -> dict[str, int]:
    """Seals the new lines of every sealed table. Returns how many lines of each."""
    sealed: dict[str, int] = {}
    for name, table in tables.items():
        sealed[name] = n = seal(table)
        while n >= AT_ONCE:
            sealed[name] += (n := seal(table))
    return sealed
