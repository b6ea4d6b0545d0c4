"""Models of our own: those for which ``manage.py up`` starts model servers. They are named by where they come from: a
model that is shipped, or a folder below the site's ``MODELS_FOLDER``. A person never gives a path."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from agentcore_site import env

SMALL: Final = "smollm2"
RANDOM: Final = "random"
SHIPPED: Final = {
    SMALL: ("SmolLM2-135M-Instruct", "a small language model, downloaded at its first start (93 MB)"),
    RANDOM: ("random", "a tiny model made at random, to try training"),
}
PACKAGES: Final = ("torch", "transformers", "peft")
FOLDER_NAME: Final = re.compile(r"[\w.-]{1,80}(/[\w.-]{1,80})?")  # of a model; also below the name of its maker


@dataclass(frozen=True, slots=True)
class ModelSource:
    """``name``: what agents call it. ``given``: the model as the command ``model_server`` takes it."""

    source: str
    name: str
    description: str
    given: str


def own_models() -> dict[str, ModelSource]:
    """All of them by source, those of the folder first."""
    found = {}
    root = Path(settings.MODELS_FOLDER) if settings.MODELS_FOLDER else None
    for config in sorted([*root.glob("*/config.json"), *root.glob("*/*/config.json")]) if root else ():
        source = config.parent.relative_to(root or "").as_posix()
        if FOLDER_NAME.fullmatch(source):
            found[source] = ModelSource(
                source, config.parent.name, "in the site's folder of models", str(config.parent)
            )
    shipped = {source: ModelSource(source, name, text, source) for source, (name, text) in SHIPPED.items()}
    return found | shipped


def why_none_starts() -> str:
    """Why this site can't start a model server now, and the remedy; "" where it can."""
    if not settings.MODEL_SERVERS:
        return "This site starts no model servers. Its administrator allows them with the setting MODEL_SERVERS."
    if not settings.MODEL_SERVER_PLACE:
        return (
            "Model servers are started by manage.py up in the role all, and this site runs without it. Start one by"
            " hand with manage.py model_server, and create an endpoint of the kind Model server for it."
        )
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        return (
            f"The packages for models are not installed here ({', '.join(missing)} missing). The site's administrator"
            " installs torch and agentcore[weights], then starts the site again."
        )
    return ""


def server_token(data_dir: Path, organization_id: Any, source: str) -> str:
    """The key of an organisation's server of a model: the same for web and ``up``, and another for each server."""
    secret = env.kept_secret(data_dir / "secrets" / "weights_token")
    return hmac.new(secret.encode(), f"{organization_id}/{source}".encode(), hashlib.sha256).hexdigest()
