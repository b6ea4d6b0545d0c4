"""The way of a newcomer from an empty organisation to a release, each step with its state as the rows say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import QuerySet
from django.urls import reverse

from agentcore_site.audit.models import AuditEvent
from agentcore_site.jobs.models import Status
from agentcore_site.lib.errors import Invalid
from agentcore_site.tenancy.actors import Actor
from agentcore_site.tenancy.models import Organization
from agentcore_site.tenancy.permissions import who_may
from budgets.meter_port import UnknownPrice
from budgets.metering.price_book import DatabasePriceBook
from evaluation.serving.models import ProductionTrace, Release, TraceStatus
from experiences.agents.selectors import datasets_visible, endpoints_visible
from experiences.models import Agent, AgentRuntime, Dataset, ModelEndpoint
from experiences.models.agent_lookup import agents_visible
from training.estimates.planning import model_price
from training.models import TrainingRun
from training.selectors.runs import run_verdict, runs_visible
from training.splits import split_counts

OF_DATASET: Final = "dataset"  # the environment that brings no queries of its own
NEWCOMER_JOBS: Final = 5  # with more jobs an organisation needs no guide, though it released nothing


@dataclass(frozen=True, slots=True)
class FirstStep:
    """``text``: its state, or the next action. ``label`` and ``url``: of the page for the action; "" where there is
    none, or the person may not do it. ``instead``: another action in its place, "demo" or "sample"."""

    title: str
    done: bool
    text: str
    label: str = ""
    url: str = ""
    instead: str = ""


@dataclass(frozen=True)
class Guide:
    """The steps of an organisation, for the agent of its latest job, or the agent that was made last."""

    actor: Actor
    organization: Organization

    @cached_property
    def is_released(self) -> bool:
        return Release.objects.visible_to(self.actor).filter(organization=self.organization).exists()

    @cached_property
    def is_over(self) -> bool:
        """A release was made, or the organisation has launched more jobs than a newcomer."""
        return self.is_released or len(self._runs.values("pk")[: NEWCOMER_JOBS + 1]) > NEWCOMER_JOBS

    @cached_property
    def run(self) -> TrainingRun | None:
        return self._runs.order_by("-job__created_at").first()

    @cached_property
    def agent(self) -> Agent | None:
        if self.run is not None:
            return self.run.agent
        return agents_visible(self.actor).filter(organization=self.organization).order_by("-created_at").first()

    @cached_property
    def endpoint(self) -> ModelEndpoint | None:
        if self.agent is not None:
            return self.agent.endpoint
        known = endpoints_visible(self.actor).filter(organization=self.organization, archived_at=None)
        return known.order_by("-created_at").first()

    @cached_property
    def dataset(self) -> Dataset | None:
        if self.run is not None and self.run.dataset is not None:
            return self.run.dataset
        known = datasets_visible(self.actor).filter(organization=self.organization, archived_at=None)
        return known.order_by("-created_at").first()

    @property
    def steps(self) -> list[FirstStep]:
        parts: list[Callable[[], FirstStep]] = [
            self._model, self._try, self._agent, self._data, self._launch, self._result, self._release
        ]  # fmt: skip
        return [part() for part in parts]

    @property
    def _runs(self) -> QuerySet[TrainingRun]:
        return runs_visible(self.actor).filter(organization=self.organization)

    @property
    def _calls_no_model(self) -> bool:
        return self.agent is not None and self.agent.runtime == AgentRuntime.ACTION

    def _model(self) -> FirstStep:
        title = "Connect a model"
        if self._calls_no_model:
            return FirstStep(title, True, "Not needed: this agent's own policy learns on this server, at no cost.")
        if self.agent is None and self.endpoint is None and settings.LLM_BASE_URL:
            return FirstStep(title, True, "The site's own endpoint is set.")
        if self.agent is None and self.endpoint is None:
            text = (
                "The address of a provider or of your own server, and its key. Without a key, create the demo agent, or"
                " choose a model of our own when you create an agent: both run on this server."
            )
            step = self._open("endpoint.edit", title, text, "Add an endpoint", "experiences:endpoint_new")
            return replace(step, instead="demo")
        try:
            self._price()
        except (Invalid, UnknownPrice) as error:
            text = error.message if isinstance(error, Invalid) else str(error)
        else:
            where = f"{self.endpoint.name} is set" if self.endpoint is not None else "The site's own endpoint is set"
            return FirstStep(title, True, f"{where}, and the price of its model is known.")
        if self.endpoint is None:
            return self._open("endpoint.edit", title, text, "Add an endpoint", "experiences:endpoint_new")
        step = self._open("price.edit", title, text, "Set a price", "budgets:price_set")
        return _with(step, model=self._model_name)

    def _price(self) -> None:
        """Raises Invalid or UnknownPrice where the model can't be paid."""
        if self.agent is not None:
            model_price(self.agent)
        else:
            DatabasePriceBook.load(self.organization.pk).price(self._model_name)

    @property
    def _model_name(self) -> str:
        named = self.agent.model if self.agent is not None else ""
        return named or (self.endpoint.model if self.endpoint is not None else "")

    def _try(self) -> FirstStep:
        title = "Try it"
        if self._calls_no_model:
            return FirstStep(title, True, "Not needed: before its first job this agent chooses by chance.")
        if self._was_tried():
            return FirstStep(title, True, "The model has answered.")
        text = "Ask the model a question in the playground, and see the answer, its cost and its time."
        step = self._open("gateway.call", title, text, "Open the playground", "serving:playground")
        if self.agent is not None:
            return _with(step, agent=self.agent.pk)
        if self.endpoint is not None:
            return _with(step, endpoint=self.endpoint.pk)
        return FirstStep(title, False, text)

    def _was_tried(self) -> bool:
        """A call was answered, or a test of an endpoint did well."""
        if self.run is not None and self.run.trajectories:
            return True
        traces = ProductionTrace.objects.visible_to(self.actor)
        if traces.filter(organization=self.organization, status=TraceStatus.OK).exists():
            return True
        tests = AuditEvent.objects.filter(
            organization_id=self.organization.pk, action="endpoint.tested", after__ok=True
        )
        return tests.exists()

    def _agent(self) -> FirstStep:
        title = "Create an agent"
        if self.agent is not None:
            return FirstStep(title, True, f"{self.agent.name}, in the environment {self.agent.environment}.")
        text = "An agent has instructions and a model. Its environment asks it queries, and says how well it did."
        step = self._open("agent.edit", title, text, "Create an agent", "experiences:agent_new")
        if self.endpoint is None:
            return step
        return _with(step, environment=OF_DATASET, runtime=AgentRuntime.LLM, endpoint=self.endpoint.pk)

    def _data(self) -> FirstStep:
        title = "Bring data"
        if self.agent is not None and self.agent.environment != OF_DATASET:
            return FirstStep(
                title, True, "The agent's environment brings its own. A dataset of yours may replace them."
            )
        if self.dataset is not None:
            *_, held_out = split_counts(self.dataset.size)
            text = f"{self.dataset.name}: {self.dataset.size:,} rows, of which {held_out:,} are held out for the proof."
            return FirstStep(title, True, text)
        text = "Questions with the answers that are right, as a file. Some are held out for the proof."
        step = self._open("dataset.edit", title, text, "Upload a dataset", "training:dataset_new")
        return replace(step, instead="sample")

    def _launch(self) -> FirstStep:
        title = "Launch"
        if self.run is not None:
            state = self.run.job.get_status_display().lower()
            return FirstStep(title, True, f"The job of {self.run.agent.name} is {state}.")
        text = "The form shows what a job would cost and what it could prove, before anything starts."
        if self.agent is None:
            return FirstStep(title, False, text)
        step = self._open("run.start", title, text, "Launch training", "training:launch")
        given = {"agent": self.agent.pk}
        if self.agent.environment == OF_DATASET and self.dataset is not None:
            given["dataset"] = self.dataset.pk
        return _with(step, **given)

    @property
    def _is_judged(self) -> bool:
        """The job is completed, and its proof has come, for or against a gain."""
        return self.run is not None and self.run.job.status == Status.COMPLETED and bool(self.run.verdict)

    def _result(self) -> FirstStep:
        title, run = "Read the result", self.run
        if run is None:
            return FirstStep(title, False, "The gain on queries that the job never trained on, with its interval.")
        job = run.job
        if job.status == Status.PAUSED:
            text = f"The job is paused: {job.error or job.get_status_reason_display()}"
        elif job.active:
            text = f"{job.progress * 100:.0f} % is done."
        elif job.status == Status.COMPLETED and not self._is_judged:
            text = f"{run_verdict(run)} The proof on held-out queries is still to come."
        else:
            text = run_verdict(run)
        done = self._is_judged
        return FirstStep(title, done, text, "Open the job", reverse("training:job", args=[run.pk]))

    def _release(self) -> FirstStep:
        title, run = "Release", self.run
        if self.is_released:
            return FirstStep(title, True, "The agent has a release. Its page deploys it.")
        if run is None or not self._is_judged:
            return FirstStep(title, False, "A proven checkpoint becomes a release, which applications call.")
        if run.best_checkpoint_id is None or not run.verdict.get("low", 0) > 0:
            text = "This job proved no gain, so there is nothing to release. More queries or another job may prove one."
            step = self._open("run.start", title, text, "Launch another job", "training:launch")
            return _with(step, **{"from": run.pk})
        text = "The gain is proven. Promote the best checkpoint: the promotion makes a release."
        return self._open("release.make", title, text, "Promote it", "serving:promote", run.best_checkpoint_id)

    def _open(self, action: str, title: str, text: str, label: str, name: str, *keys: object) -> FirstStep:
        """A step to be done: a link for people with the right, else a sentence about who has it."""
        if not self.actor.may(action, self.organization.pk):
            return FirstStep(title, False, f"{text} {who_may(action)}")
        return FirstStep(title, False, text, label, reverse(name, args=keys))


def _with(step: FirstStep, **query: object) -> FirstStep:
    """The step with a query in its address."""
    return replace(step, url=f"{step.url}?{urlencode(query)}") if step.url else step
