"""The ``llm`` runtime: an agent whose decisions are a language model's messages, in four philosophies."""

from experiences.runtimes.llm.agent import LLMRuntime
from experiences.runtimes.llm.calls import ChatModel, Sampling
from experiences.runtimes.llm.philosophies import PHILOSOPHIES

__all__ = ["PHILOSOPHIES", "ChatModel", "LLMRuntime", "Sampling"]
