"""The ``llm`` runtime: an agent whose decisions are a language model's messages, in five philosophies."""

from experiences.rollouts.runtimes.llm.agent import LLMRuntime
from experiences.rollouts.runtimes.llm.calls import ChatModel, Sampling
from experiences.rollouts.runtimes.llm.philosophies import PHILOSOPHIES

__all__ = ["PHILOSOPHIES", "ChatModel", "LLMRuntime", "Sampling"]
