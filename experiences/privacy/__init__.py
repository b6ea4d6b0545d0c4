"""Personal data and secrets leave a text here, before it is stored and before a learner's model reads it.

Pure: no Django, no I/O. What is replaced and what is not, with measured recall and precision: docs/privacy.md.
"""

from experiences.privacy.kinds import KINDS, Span
from experiences.privacy.redaction import Redacted, find, redact, redact_with_counts
from experiences.privacy.truncation import cut_short
from experiences.privacy.values import is_clean, redact_value

__all__ = [
    "KINDS",
    "Redacted",
    "Span",
    "cut_short",
    "find",
    "is_clean",
    "redact",
    "redact_value",
    "redact_with_counts",
]
