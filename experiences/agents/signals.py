"""Signals of changes to agents, for the packages above that act on them. Receivers run inside the transaction of
the change: an error of theirs takes the change back."""

from django.dispatch import Signal

# All are sent with ``agent`` (Agent); the first two with ``actor`` (Actor or user) too.
agent_evolves = Signal()  # it was made, or changed, to evolve by itself
agent_archived = Signal()
agent_context_changed = Signal()  # the context that it is served is drawn by other settings
