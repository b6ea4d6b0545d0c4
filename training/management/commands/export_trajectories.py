"""``manage.py export_trajectories``: trajectories to a file or to standard output, in constant memory."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from django.core.management.base import BaseCommand, CommandError

from agentcore_site.jobs.models import Job
from agentcore_site.lib.errors import DomainError
from agentcore_site.lib.texts import uuid_of
from agentcore_site.tenancy.actors import Actor
from experiences.models import Agent
from experiences.trajectories.exports.formats import FORMATS
from experiences.trajectories.exports.selection import export_start
from experiences.trajectories.exports.services import filters_stored
from experiences.trajectories.exports.streams import pieces
from experiences.trajectories.filters import TrajectoryFilters
from training.management.arguments import agent_named

OF = ("job", "agent")


class Command(BaseCommand):
    help = "Export trajectories of a job or an agent, archived ones too, by the filters of the list."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--job", help="the id of a training or evaluation job")
        what.add_argument("--agent", help="slug or id of an agent")
        parser.add_argument("--organization", help="slug of the organisation, where the agent's slug is not unique")
        parser.add_argument("--format", choices=[*FORMATS], default="jsonl")
        parser.add_argument("--output", type=Path, help="a file; without it standard output")
        for name, one in TrajectoryFilters.base_filters.items():
            if name not in OF:
                text = str(one.extra.get("help_text") or "as the list filters").replace("%", "%%")
                parser.add_argument(f"--{name.replace('_', '-')}", help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            filters = filters_stored({name: options[name] for name in TrajectoryFilters.base_filters})
            actor = self._owner(options)
            found = pieces(export_start(actor, filters, format=options["format"]), options["format"])
            path: Path | None = options["output"]
            if path is None:
                _write(found, sys.stdout.buffer)
                return
            # Under another name first: a file under its own name is whole.
            unfinished = path.with_name(f"{path.name}.part")
            with unfinished.open("wb") as file:
                size = _write(found, file)
            os.replace(unfinished, path)
            self.stderr.write(f"{path}: {size:,} bytes")
        except DomainError as error:
            raise CommandError(error.message) from error
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has enough
        except OSError as error:
            raise CommandError(f"{options['output']} can't be written: {error.strerror}.") from error

    def _owner(self, options: dict[str, Any]) -> Actor:
        """The command acts for who owns the agent, or asked for the job.

        Raises:
            CommandError: there is no such agent or job, or it has no owner.
        """
        if options["agent"]:
            agent = agent_named(options["agent"], options["organization"])
            return Actor(agent.created_by, interface="command", organization_id=agent.organization_id)
        job = _job(options["job"])
        owner = job.created_by or _agent_owner(job)
        if owner is None:
            raise CommandError(f"The job {job.pk} has no owner any more: export by its agent.")
        return Actor(owner, interface="command", organization_id=job.organization_id)


def _job(text: str) -> Job:
    found = Job.objects.filter(pk=uuid_of(text)).select_related("created_by").first() if uuid_of(text) else None
    if found is None:
        raise CommandError(f"There is no job {text}.")
    return found


def _agent_owner(job: Job) -> Any:
    """Of a job that the system started itself: who owns its agent."""
    found = Agent.objects.filter(runs__job=job).select_related("created_by").first()
    return None if found is None else found.created_by


def _write(found: Iterator[bytes], file: IO[bytes]) -> int:
    size = 0
    for piece in found:
        size += file.write(piece)
    file.flush()
    return size
