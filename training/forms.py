"""The launch form: what was typed, as the services take it. An empty setting means the preset's value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Final

from django.db.models import QuerySet
from django.http import QueryDict

from agentcore_site.jobs.models import Priority
from agentcore_site.lib.errors import Conflict, DomainError, Invalid
from agentcore_site.tenancy.actors import Actor
from experiences.agents.option_fields import options_context, typed_options
from experiences.agents.selectors import dataset_get, datasets_visible
from experiences.models import Agent, Dataset
from experiences.models.agent_lookup import OFFERED, agent_get, agents_offered, agents_visible
from experiences.rollouts.rewards import rewards
from training.config.applicability import counts_for
from training.config.form import PLAIN, Field, changes, fields, groups, nested, value_at
from training.config.presets import DEFAULT_PRESET, PRESETS, Preset, preset_config, presets_for
from training.learners import learners_for
from training.models import TrainingRun
from training.schema import read_object
from training.services.launch_defaults import groups_fault, launch_defaults

SOURCES: Final = ("environment", "dataset", "upload")
OPTIONS: Final = "reward_options"
OWN: Final = ("agent", "source", "dataset", "domain", "dataset_domain", "preset", "title", "priority", "not_before")


@dataclass
class Setting:
    """One input: the field's words, what was typed, what the preset says, and what is wrong with it."""

    field: Field
    typed: str
    preset: Any
    error: str = ""
    options: dict[str, Any] | None = None  # context of the inputs of a reward's options

    @property
    def touched(self) -> bool:
        return self.typed != ""


@dataclass
class LaunchForm:
    """Everything that the form holds. ``typed`` are texts as they came; ``errors`` are messages by field."""

    actor: Actor
    typed: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)
    status: int = 400  # of the page that shows a refusal
    shown: str | None = None  # the reward whose options the form showed as inputs
    _agents: dict[str, Agent | None] = field(default_factory=dict)  # what was looked up, by what was typed
    _datasets: dict[str, Dataset] = field(default_factory=dict)

    # -- where it comes from -----------------------------------------------------------------------------------------

    @classmethod
    def read(cls, actor: Actor, data: QueryDict) -> LaunchForm:
        known = {*OWN, *fields()}
        typed = {name: data.get(name, "").strip() for name in known if data.get(name)}
        options = typed_options(data, OPTIONS, rewards)
        if options is not None:
            typed[OPTIONS] = json.dumps(options)
        return cls(actor, typed, shown=data.get(f"{OPTIONS}.shown"))

    @classmethod
    def like(cls, actor: Actor, run: TrainingRun) -> LaunchForm:
        """A duplicate of a run: the same agent, data, preset and changes to it."""
        typed = typed_of(run)
        typed |= {"agent": str(run.agent_id), "preset": run.preset}
        typed |= {"source": "dataset", "dataset": str(run.dataset_id)} if run.dataset_id else {"source": "environment"}
        return cls(actor, typed)

    # -- what it says ------------------------------------------------------------------------------------------------

    def text(self, name: str) -> str:
        return self.typed.get(name, "")

    @cached_property
    def agents(self) -> list[Agent]:
        """Agents that the actor may train: the first by name, and the chosen one."""
        found = agents_offered(self._trainable)
        chosen = self.text("agent") and self.agent
        return [chosen, *found] if chosen and chosen not in found else found

    @cached_property
    def agents_left(self) -> int:
        """Number of further agents."""
        return self._trainable.count() - len(self.agents) if len(self.agents) >= OFFERED else 0

    @property
    def _trainable(self) -> QuerySet[Agent]:
        mine = [one for one in self.actor.organization_ids if self.actor.may("run.start", one)]
        return agents_visible(self.actor).filter(organization_id__in=mine)

    @property
    def datasets(self) -> list[Dataset]:
        return list(datasets_visible(self.actor).filter(archived_at=None)[:200])

    @property
    def agent(self) -> Agent | None:
        """The chosen agent, or the only one there is."""
        key = self.text("agent")
        if key not in self._agents:
            mine = [] if key else self.agents
            only = mine[0] if len(mine) == 1 else None
            self._agents[key] = agent_get(self.actor, key) if key else only
        return self._agents[key]

    @property
    def source(self) -> str:
        if self.text("source") in SOURCES:
            return self.text("source")
        agent = self.agent
        return "dataset" if agent is not None and agent.environment == "dataset" else "environment"

    @property
    def dataset(self) -> Dataset | None:
        key = self.text("dataset")
        if self.source != "dataset" or not key:
            return None
        if key not in self._datasets:
            self._datasets[key] = dataset_get(self.actor, key)
        return self._datasets[key]

    @property
    def preset(self) -> str:
        return self.text("preset") if self.text("preset") in PRESETS else DEFAULT_PRESET

    @property
    def presets(self) -> list[Preset]:
        """The presets that fit the agent, and are switched on here."""
        agent = self._known_agent
        fitting = presets_for(agent.runtime, self._learner) if agent is not None else list(PRESETS.values())
        closed = agent is not None and groups_fault(agent)
        return [preset for preset in fitting if not (closed and preset.changes.get("algorithm") == "tfgrpo")]

    @property
    def marked(self) -> str:
        """The preset that is marked: the chosen one, or the default where that does not fit the agent."""
        return self.preset if any(preset.name == self.preset for preset in self.presets) else DEFAULT_PRESET

    @property
    def priority(self) -> int:
        known = {str(value) for value in Priority.values}
        return int(self.text("priority")) if self.text("priority") in known else int(Priority.NORMAL)

    @property
    def not_before(self) -> datetime | None:
        """The time before which the job does not start, in UTC.

        Raises:
            Invalid: it is no date and time.
        """
        if not self.text("not_before"):
            return None
        try:
            return datetime.fromisoformat(self.text("not_before")).replace(tzinfo=UTC)
        except ValueError:
            message = "Give the start as a date and a time, e.g. 2030-01-31 22:00."
            raise Invalid(message, fields={"not_before": message}) from None

    @property
    def typed_settings(self) -> list[str]:
        """The names of the settings that differ from the preset."""
        return [name for name in fields() if self._setting_typed(name)]

    def config(self) -> dict[str, Any]:
        """Differences from the preset, nested as in the schema. The schema parses the texts."""
        return nested({name: _value(fields()[name], self._setting_typed(name)) for name in self.typed_settings})

    # -- how it is shown ---------------------------------------------------------------------------------------------

    def refuse(self, error: DomainError) -> None:
        """Takes over a service's messages: by field where it names one, else above the form."""
        self.status = error.code if isinstance(error, Conflict) else 400
        for name, message in error.fields.items():
            known = name if name in fields() or name in OWN else "data" if name.startswith("training_data") else name
            if known in self.errors:
                self.errors[known] += f" {message}"
            else:
                self.errors[known] = message
        if not error.fields:
            self.errors["form"] = error.message

    @property
    def plain(self) -> list[Setting]:
        return [self._setting(fields()[name]) for name in PLAIN]

    @property
    def advanced(self) -> list[tuple[str, list[Setting], bool]]:
        """(group, settings, whether it has to be open): open where something was typed or is wrong."""
        shown = []
        for title, members in groups().items():
            settings = [self._setting(one) for one in members if self._counts(one) or one.name in self.errors]
            if not settings:
                continue
            shown.append((title, settings, any(setting.error for setting in settings)))
        return shown

    @property
    def touched(self) -> int:
        return sum(setting.touched for _, settings, _ in self.advanced for setting in settings)

    @property
    def open(self) -> bool:
        return self.touched > 0 or any(is_open for _, _, is_open in self.advanced)

    def _counts(self, field: Field) -> bool:
        algorithm = self.text("algorithm") or str(self._preset_values["algorithm"])
        return counts_for(field.name, self._runtime, algorithm, self._learner)

    def _setting(self, one: Field) -> Setting:
        if one.name == "learner":
            one = replace(one, kind="choice", choices=tuple(each.name for each in learners_for(self._runtime)))
        preset, error = value_at(self._preset_values, one.name), self.errors.get(one.name, "")
        if one.name == "reward":
            preset = launch_defaults(self._known_agent, {}).get("reward", preset)  # that of an empty field
            named = {self.text("reward")} - {""}  # also a reward that is not there any more
            one = replace(one, kind="choice", choices=tuple(sorted({*rewards.names()} | named)))
        setting = Setting(one, self._setting_typed(one.name), preset, error)
        if one.name == OPTIONS:
            typed = _object(setting.typed)
            setting.options = options_context(OPTIONS, rewards, self._reward, preset if typed is None else typed)
        return setting

    @property
    def _reward(self) -> str:
        return self.text("reward") or str(self._preset_values["reward"])

    def _setting_typed(self, name: str) -> str:
        """The text of a setting. Options of another reward, and options as they are anyway, count as not typed."""
        text = self.text(name)
        if name == OPTIONS and text:
            same = _object(text) == self._preset_values[OPTIONS]
            return "" if same or self.shown not in {None, self._reward} else text
        return text

    @cached_property
    def _preset_values(self) -> Mapping[str, Any]:
        """Values of empty fields: the preset, overridden by the defaults of the agent and the site."""
        defaults = launch_defaults(self._known_agent, {"reward": self.text("reward")} if self.text("reward") else {})
        # A learner that was chosen stays a choice: as the preset's own it would be sent as nothing.
        return {**_values_of(self.preset, self._runtime, self._learner), **defaults, "learner": ""}

    @property
    def _known_agent(self) -> Agent | None:
        return self.agent if not self.errors.get("agent") else None

    @property
    def _learner(self) -> str:
        """The learner that was typed, where it fits the agent; else the one that is taken anyway."""
        named = self.text("learner")
        return named if named in {learner.name for learner in learners_for(self._runtime)} else ""

    @property
    def _runtime(self) -> str:
        agent = self._known_agent
        return agent.runtime if agent else "action"


@lru_cache(maxsize=64)
def _values_of(preset: str, runtime: str, learner: str) -> Mapping[str, Any]:
    return preset_config(preset, runtime, learner).as_dict()


def typed_of(run: TrainingRun) -> dict[str, str]:
    """As they are typed, the settings of a run that a launch of now would not take by itself."""
    config, kind = run.configuration.as_dict(), run.policy_kind
    typed = {one.name: _text(mine) for one, _, mine in changes(config, kind)}
    for name, value in launch_defaults(run.agent, {}).items():
        typed.pop(name, None)
        if config[name] != value:
            typed[name] = _text(config[name])
    return typed


def _object(text: str) -> Any:
    """The options in a text; the text itself where it is no object, and None where it is empty."""
    found = read_object(text)
    return found if isinstance(found, dict) else text or None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _value(field: Field, text: str) -> Any:
    """Choices that are numbers must be numbers: a Literal takes no text for them."""
    for choice in field.choices:
        if not isinstance(choice, str) and str(choice) == text:
            return choice
    return text
