"""Following a job from the command line: a progress bar while it runs, one JSON object when it is done."""

from __future__ import annotations

import sys
import time
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from agentcore_site.jobs.models import ENDED, Job, JobEvent, Status
from agentcore_site.lib.money import dollars
from training.models import TrainingRun
from training.selectors.runs import run_verdict

POLL_SECONDS = 0.5
EVALUATION_SECONDS = 900


def follow(job_id: UUID) -> dict[str, Any]:
    """Shows progress on standard error until job and final evaluation are done. Returns the summary."""
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    live = console.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not live) as progress:
        task = progress.add_task("training", total=1.0, note="waiting for a worker")
        shown = 0.0
        while True:
            run = TrainingRun.objects.select_related("job").get(job_id=job_id)
            note = _note(run)
            progress.update(task, completed=run.job.progress, note=note)
            if not live and time.monotonic() - shown > 2:
                print(f"{run.job.status:>9}  {note}", file=sys.stderr, flush=True)
                shown = time.monotonic()
            if run.job.status in ENDED or run.job.status == Status.PAUSED:
                break
            time.sleep(POLL_SECONDS)
        if run.job.status == Status.COMPLETED:
            progress.update(task, description="evaluating", note=f"held-out queries against {run.baseline}")
            run = _await_verdict(run)
    print(run_verdict(run), file=sys.stderr, flush=True)
    return summary(run, seconds=time.monotonic() - began)


def summary(run: TrainingRun, *, seconds: float) -> dict[str, Any]:
    """The one JSON object that scripts read."""
    return {
        "job_id": str(run.job_id),
        "status": run.job.status,
        "iterations": run.iteration,
        "trajectories": run.trajectories,
        "baseline_success_rate": run.verdict.get("baseline_success_rate"),
        "success_rate": run.verdict.get("success_rate"),
        "p_value": run.verdict.get("p_value"),
        "seconds": round(seconds, 2),
        "cost_usd": dollars(run.spent_micros),
    }


def _note(run: TrainingRun) -> str:
    parts = [f"iteration {run.iteration:,}/{run.total_iterations:,}", f"{run.trajectories:,} trajectories"]
    if run.selection:
        success, before = (100 * run.selection[key] for key in ("success_rate", "baseline_success_rate"))
        parts.append(f"success {success:.0f} % (before {before:.0f} %)")
    if run.job.status == Status.QUEUED:
        last = JobEvent.objects.filter(job_id=run.job_id).order_by("-seq").first()
        parts.append(last.message if last else "")
    return ", ".join(part for part in parts if part)


def _await_verdict(run: TrainingRun) -> TrainingRun:
    """The run once its held-out evaluation is in its row, or after a quarter of an hour."""
    deadline = time.monotonic() + EVALUATION_SECONDS
    while time.monotonic() < deadline:
        run = TrainingRun.objects.select_related("job").get(job_id=run.job_id)
        failed = Job.objects.filter(exclusive_key=f"evaluation:{run.best_checkpoint_id}", status=Status.FAILED)
        if run.verdict or failed.exists():
            return run
        time.sleep(POLL_SECONDS)
    return run
