"""The only domain signal. Evaluation listens; a sweep finds what it missed (the row is the truth)."""

from django.dispatch import Signal

# Sent after commit with ``checkpoint_id`` (UUID), ``run_id`` (UUID) and ``final`` (bool).
checkpoint_saved = Signal()
