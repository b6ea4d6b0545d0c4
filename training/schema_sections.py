"""Sections of ``GRPOConfig``: the settings that belong to one part of training each."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from training.policies.features import TokenStyle


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class ShapingConfig(Section):
    """Bonuses beside the outcome (docs/algorithms.md#rewards)."""

    rule: Literal["strict", "naive", "potential", "gated"] = Field(
        "strict",
        title="Payment rule",
        description="When bonuses are paid. strict: once per distinct useful call and for the first valid verify; "
        "potential: changes no optimum; gated: only with success; naive: every call, which agents learn to farm.",
    )
    tool: float = Field(
        0.1, ge=-1, le=1, title="Tool bonus",
        description="Paid for a successful tool call. Above 0.1 agents call tools for their own sake; 0 turns it off.",
    )  # fmt: skip
    verify: float = Field(
        0.05, ge=-1, le=1, title="Verify bonus",
        description="Paid for the first valid verify step. 0.02-0.1 makes checking a habit.",
    )  # fmt: skip
    step: float = Field(
        -0.01, ge=-1, le=0, title="Step cost",
        description="Paid for every step, so that short solutions win. Beyond -0.05 agents give up early.",
    )  # fmt: skip
    wrong_answer: float = Field(
        0.0, ge=-1, le=0, title="Wrong answer",
        description="Paid when an answer was given and is wrong. -0.1 to -0.3 makes an unsure agent look further.",
    )  # fmt: skip
    timeout: float = Field(
        -1.0, ge=-10, le=0, title="Time-out",
        description="The reward of a rollout that ran out of time. -1 is as much as a success is worth.",
    )  # fmt: skip
    max_paid_calls: int = Field(
        3, ge=0, le=100, title="Paid calls",
        description="Rule strict: at most this many tool calls of an episode are paid. 2-4 fits chains of two tools.",
    )  # fmt: skip


class FeatureConfig(Section):
    """Features of a text for the action policy (docs/algorithms.md#features)."""

    bits: int = Field(
        13, ge=6, le=20, title="Hash bits",
        description="2^bits feature slots. 10-16 learn alike; fewer collide, more cost memory.",
    )  # fmt: skip
    bigrams: bool = Field(
        False, title="Word pairs",
        description="Adds pairs of neighbouring words: helps with unseen wording, and makes encoding slower.",
    )  # fmt: skip
    min_df: int = Field(
        3, ge=1, le=1000, title="Minimum queries per word",
        description="Words in fewer training queries are dropped, so that names are not learned by heart. 2-5; "
        "1 keeps every word.",
    )  # fmt: skip
    tokens: TokenStyle = Field(
        "shape", title="Tokens",
        description="shape replaces numbers by their kind, so that what is learned holds for other numbers; raw "
        "keeps them.",
    )  # fmt: skip
    phase_gate: bool = Field(
        True, title="Phase gate",
        description="The question's words count only until a plain result is in hand. A designer's prior that "
        "speeds up tool routing; turn it off where the step after a result depends on the question.",
    )  # fmt: skip
    own_history: bool = Field(
        True, title="Own history",
        description="One learned weight per status, shared by all actions, for what this very action brought before: "
        "whether to repeat what failed is learned once and not for each tool.",
    )  # fmt: skip


class EarlyStoppingConfig(Section):
    """Rules for a stop before the last iteration (docs/algorithms.md#convergence)."""

    enabled: bool = Field(
        True, title="Stop early",
        description="Stops once the selection score has stopped rising, which saves its budget.",
    )  # fmt: skip
    patience: int = Field(
        5, ge=1, le=1000, title="Patience",
        description="Evaluations in a row without a gain before stopping. 5-20; small values stop on a plateau.",
    )  # fmt: skip
    min_delta: float = Field(
        1.0, ge=0, le=10, title="Smallest gain",
        description="A gain counts when it exceeds this many standard errors of the score. 0.5-2.",
    )  # fmt: skip


class ExplorationConfig(Section):
    """Exploration of training rollouts. Only the action policy uses it."""

    failure_memory: float = Field(
        0.0, ge=0, le=10, title="Failure memory",
        description="How strongly training rollouts avoid what was tried in vain on similar questions. 0 is off; "
        "0.5-1 finds the right tool for stubborn kinds of questions.",
    )  # fmt: skip
    query_sampling: Literal["uniform", "prioritised"] = Field(
        "uniform", title="Query sampling",
        description="prioritised draws queries more often the less similar ones succeeded lately.",
    )  # fmt: skip
    learn_from_failed_groups: bool = Field(
        True, title="Learn from failed groups",
        description="Off: in groups without a success, differences in step costs and bonuses teach nothing, which "
        "keeps the policy from settling on the cheapest way to fail.",
    )  # fmt: skip


class ContextConfig(Section):
    """Learning of the context of a language model's agent (docs/learning-without-weights.md). Only such agents use
    it."""

    propose: bool = Field(
        True, title="Propose lessons",
        description="Asks the model what groups of attempts teach. Off: only the lessons that are there are weighed.",
    )  # fmt: skip
    update_rule: Literal["grpo_adam", "ridge_thompson"] = Field(
        "grpo_adam", title="Update rule",
        description="How lessons gain weight: by GRPO's gradient, or by the probability that they help (quicker, and "
        "less cautious about combinations).",
    )  # fmt: skip
    epochs: int = Field(
        3, ge=1, le=100, title="Epochs",
        description="Into how many parts the iterations are divided. Their proposals and costs are shown "
        "together. 3.",
    )  # fmt: skip
    search_every: int = Field(
        2, ge=1, le=10_000, title="Search step",
        description="Algorithm tfgrpo: iterations between two validations on training queries, at each of which the "
        "lessons learned since are kept or given up. Small steps (1-3) separate harm from help.",
    )  # fmt: skip
    token_cost: float = Field(
        0.0, ge=0, le=10, title="Price of the context",
        description="Taken off the reward per 1,000 tokens of lessons. 0 asks for the best score; 0.05-0.2 for a "
        "short prompt.",
    )  # fmt: skip
    propose_every: int = Field(
        1, ge=1, le=1000, title="Reflect every",
        description="Iterations between two reflections. Each asks two questions per group that is read whole, six per "
        "other.",
    )  # fmt: skip
    propose_until: float = Field(
        0.6, gt=0, le=1, title="Reflect until",
        description="Share of the iterations in which lessons are proposed; the rest measures them. 0.5-0.8. Not used "
        "by tfgrpo.",
    )  # fmt: skip
    reflect_groups: int = Field(
        4, ge=1, le=128, title="Groups compared",
        description="Groups of an iteration that are compared, those with the most spread. Small numbers (3-5) "
        "generalise better than whole batches. Algorithm gepa: the queries of a minibatch.",
    )  # fmt: skip
    reflect_each: int = Field(
        2, ge=1, le=16, title="Attempts read",
        description="Of each group so many good and so many bad attempts are summarised. 1-3.",
    )  # fmt: skip
    group_tokens: int = Field(
        0, ge=0, le=100_000, title="Whole groups up to",
        description="Tokens up to which all attempts of a group are shown in one question, instead of summaries of a"
        " few: two questions a group, each as long as the group. 0: never.",
    )  # fmt: skip
    show_answers: bool = Field(
        False, title="Show right answers",
        description="The model that reflects reads what is right, and what judges said of the attempts, of training"
        " queries only. A lesson that gives an answer away is refused.",
    )  # fmt: skip
    exemplars: int = Field(
        0, ge=0, le=10, title="Exemplars per iteration",
        description="So many short pieces of attempts that went well, in the agent's own words, are tried as lessons as"
        " well. They are measured like others and cost no question.",
    )  # fmt: skip
    max_lessons: int = Field(
        3, ge=1, le=10, title="Lessons per group",
        description="What one comparison may propose at most. 1-3; more find rare lessons sooner.",
    )  # fmt: skip
    max_new: int = Field(
        4, ge=1, le=60, title="New lessons at once",
        description="The most lessons that one iteration may add: effects of too many at once can't be separated. 2-8.",
    )  # fmt: skip
    max_words: int = Field(
        32, ge=8, le=100, title="Words per lesson",
        description="A longer lesson is refused. 32 keep it to one piece of advice.",
    )  # fmt: skip
    max_items: int = Field(
        60, ge=1, le=200, title="Lessons at most",
        description="When the library is full, the least useful lesson makes room. 30-60.",
    )  # fmt: skip
    max_tokens: int = Field(
        2500, ge=100, le=100_000, title="Tokens at most",
        description="Of all lessons together: what the longest prompt grows by.",
    )  # fmt: skip
    prune_z: float = Field(
        2.5, ge=1, le=6, title="Evidence to prune",
        description="A lesson goes when its effect lies so many standard errors below 0. At 2.5 about 2 % of harmless "
        "ones go by chance, at 2 about 10 %.",
    )  # fmt: skip
    prune_information: float = Field(
        15.0, ge=1, le=1000, title="Rollouts to prune",
        description="Comparisons that have to speak before a lesson may go, in units of information. 10-30.",
    )  # fmt: skip
    ship_confidence: float = Field(
        0.5, ge=0.5, lt=1, title="Confidence to keep",
        description="A lesson is kept when it helps with more than this probability. 0.5 for the best score, 0.7-0.95 "
        "for a lean prompt.",
    )  # fmt: skip
    relevance: Literal["queries", "none"] = Field(
        "none", title="Relevance",
        description="none: all queries get the lessons that help on average. queries: a query gets the lessons that "
        "help with queries of its words; for thousands of rollouts, where lessons help some kinds of queries and harm "
        "others. Not used by tfgrpo.",
    )  # fmt: skip
    kinds: bool = Field(
        False, title="Sort queries by kind",
        description="One question a run sorts the training queries by what they are about. A lesson's effect may hold "
        "for one kind, where queries name one thing by different words. Not used by tfgrpo.",
    )  # fmt: skip
    reuse: bool = Field(
        True, title="Go on from the last run",
        description="Begins with what the agent's last run measured, and tries again what its gate refused. Left out "
        "where a query that tests this run taught that one: the same data with the same seed are split alike.",
    )  # fmt: skip
    gate_samples: int = Field(
        16, ge=1, le=256, title="Samples of the gate",
        description="Rollouts per selection query, of each side, that the gate may take at most. It takes them in "
        "steps, and stops as soon as it is decided. 8-32.",
    )  # fmt: skip
    gate_steps: int = Field(
        4, ge=1, le=16, title="Interim analyses of the gate",
        description="In how many steps the samples are taken: all analyses together err as seldom as one would. 1 "
        "takes all at once.",
    )  # fmt: skip
    gate_alpha: float = Field(
        0.025, gt=0, le=0.5, title="Error of the gate",
        description="How often a context that is no better may be accepted, over all interim analyses of a run's gate.",
    )  # fmt: skip
    gate_margin: float = Field(
        0.02, ge=0, le=0.5, title="Margin of the gate",
        description="Algorithm tfgrpo: a step of the search keeps what does not look worse by more than this.",
    )  # fmt: skip
    accept_weak_gate: bool = Field(
        False, title="Launch with a weak gate",
        description="A launch is refused when its selection queries are so few that the gate could hardly ever let "
        "anything through. On: it is taken all the same.",
    )  # fmt: skip
    accept_dropped_context: bool = Field(
        False, title="Launch though the context is dropped",
        description="A launch is refused when the context that an agent over HTTP is sent was seen not to reach its "
        "model: it could learn nothing. On: it is taken all the same.",
    )  # fmt: skip
    min_mixed: float = Field(
        0.1, ge=0, le=1, title="Least share of mixed groups",
        description="Below this share of groups with both good and bad attempts nothing is proposed.",
    )  # fmt: skip

    stop_when_equal: bool = Field(
        True, title="Stop when rewards are equal",
        description="Ends the job after so many groups in a row with equal rewards that there is nothing to learn "
        "(docs/algorithms.md#convergence), which saves the rest of its budget.",
    )  # fmt: skip

    @property
    def validation_samples(self) -> int:
        """Rollouts per selection query of one validation during the run, and of each step of the gate."""
        return max(self.gate_samples // self.gate_steps, 1)


class WeightsConfig(Section):
    """Learning of a language model's own weights (docs/weights.md). Only learner weights uses it."""

    lora_rank: int = Field(
        16, ge=0, le=256, title="LoRA rank",
        description="Size of the adapter that is learned. 8-64; 0 learns all weights, for small models.",
    )  # fmt: skip
    max_length: int = Field(
        1024, ge=1, le=1_000_000, title="Tokens per rollout",
        description="Loss dr_grpo divides by this many tokens for each rollout, however long it was.",
    )  # fmt: skip
