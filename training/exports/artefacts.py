"""Artefacts of every run: its model card as Markdown, and its training curves as a picture that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

from agentcore_site.lib.money_format import money
from training.models import Iteration, TrainingRun
from training.selectors.runs import best_label, done_criteria, run_verdict

WIDTH, HEIGHT, EDGE = 720, 180, 48
MOST_POINTS: Final = 400
CURVES: Final = (
    ("success_rate", "Success rate of rollouts"),
    ("reward_mean", "Mean reward"),
    ("entropy", "Entropy"),
    ("loss", "Loss"),
)
COLORS: Final = ("#0072b2", "#009e73", "#d55e00", "#cc79a7")  # Okabe and Ito's


def model_card(run: TrainingRun) -> str:
    """Model card in the usual sections: training, data, proof and known limits."""
    job, config = run.job, run.configuration
    met = {None: "not known", True: "met", False: "not met"}
    lines = [
        f"# {run.agent.name}: {best_label(run) or 'no checkpoint'}",
        "",
        run_verdict(run),
        "",
        "## Model",
        "",
        f"- Agent: {run.agent.name} (`{run.agent.slug}`), runtime {run.policy_kind}",
        f"- Base model: {_base_model(run) or 'none: the policy chooses actions'}",
        f"- Algorithm: {config.algorithm}, preset {config.preset}, seed {run.seed}",
        f"- Job: `{run.job_id}`, {job.get_status_display().lower()}"
        + (f" on {job.finished_at:%Y-%m-%d %H:%M} UTC" if job.finished_at else ""),
        "",
        "## Training data",
        "",
        f"- Source: {run.dataset.name if run.dataset else run.environment}",
        f"- Queries: {run.n_train:,} to train on, {run.n_selection:,} to select by, {run.n_held_out:,} held out",
        f"- Trajectories: {run.trajectories:,} in {run.iteration:,} of {run.total_iterations:,} iterations",
        "",
        "## Evaluation",
        "",
        *_evaluation(run),
        "",
        "## Cost",
        "",
        f"- {money(run.spent_micros)} of {money(run.limit_micros)}, {run.tokens:,} tokens",
        "",
        "## Acceptance criteria",
        "",
        *(f"- {one['name']}: {met[one['met']]} ({one['detail']})" for one in done_criteria(run)),
        "",
        "## Warnings",
        "",
        *([f"- {warning}" for warning in run.warnings] or ["None."]),
    ]
    return "\n".join(lines) + "\n"


def _base_model(run: TrainingRun) -> str:
    endpoint = run.agent.endpoint
    return run.agent.model or ("" if endpoint is None else endpoint.model)


def _evaluation(run: TrainingRun) -> list[str]:
    known = run.verdict
    if known.get("success_rate") is None:
        return ["The held-out queries have not been asked."]
    lines = [f"- Held-out success rate: {known['success_rate']:.1%}"]
    if known.get("baseline_success_rate") is not None:
        lines.append(f"- Of {run.baseline}: {known['baseline_success_rate']:.1%}")
    if known.get("p_value") is not None:
        lines.append(f"- p-value of the difference: {known['p_value']:.3g}")
    return lines


def training_curves(run: TrainingRun) -> str:
    """An SVG document with one chart a figure over the iterations; at most so many points of each."""
    rows = list(Iteration.objects.filter(run=run).order_by("number").values_list("number", "metrics"))
    rows = rows[:: max(1, -(-len(rows) // MOST_POINTS))]
    charts = [
        _chart(place, title, color, [(number, figures.get(name)) for number, figures in rows])
        for place, ((name, title), color) in enumerate(zip(CURVES, COLORS, strict=True))
    ]
    height = HEIGHT * len(CURVES)
    title = escape(f"Training curves of {run}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
        f' font-size="11"><title>{title}</title><rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        f"{''.join(charts)}</svg>\n"
    )


def _chart(place: int, title: str, color: str, points: Sequence[tuple[int, Any]]) -> str:
    known = [(x, float(y)) for x, y in points if isinstance(y, int | float)]
    top, bottom = place * HEIGHT + 28, (place + 1) * HEIGHT - 24
    head = f'<text x="{EDGE}" y="{top - 12}" font-weight="bold">{escape(title)}</text>'
    if not known:
        return f'{head}<text x="{EDGE}" y="{(top + bottom) // 2}" fill="#666">not measured</text>'
    low, high = min(y for _, y in known), max(y for _, y in known)
    first, last = known[0][0], known[-1][0]

    def at(x: int, y: float) -> str:
        across = (x - first) / max(last - first, 1)
        up = (y - low) / (high - low) if high > low else 0.5
        return f"{EDGE + across * (WIDTH - 2 * EDGE):.1f},{bottom - up * (bottom - top):.1f}"

    line = " ".join(at(x, y) for x, y in known)
    axis = (
        f'<path d="M{EDGE} {top}V{bottom}H{WIDTH - EDGE}" fill="none" stroke="#999"/>'
        f'<text x="{EDGE - 6}" y="{top + 4}" text-anchor="end">{high:.3g}</text>'
        f'<text x="{EDGE - 6}" y="{bottom}" text-anchor="end">{low:.3g}</text>'
        f'<text x="{EDGE}" y="{bottom + 14}">{first:,}</text>'
        f'<text x="{WIDTH - EDGE}" y="{bottom + 14}" text-anchor="end">{last:,} iterations</text>'
    )
    return f'{head}{axis}<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>'
