"""Safety: probes that we wrote ourselves, and the rules that judge what an agent makes of them.

The built-in plugins are registered here; a user's own come through entry points.
"""

from evaluation.serving.safety import bias, injection, jailbreak, leaks, refusal, toxicity
from evaluation.serving.safety.base import Probe, ProbeReply, Ruling, SafetyPlugin, safety_plugins

__all__ = [
    "Probe",
    "ProbeReply",
    "Ruling",
    "SafetyPlugin",
    "bias",
    "injection",
    "jailbreak",
    "leaks",
    "refusal",
    "safety_plugins",
    "toxicity",
]
