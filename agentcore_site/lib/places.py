"""Names of places: a host may have several, one for each data folder on which ``manage.py up`` runs."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import Final

PLACE: Final = "WORKER_PLACE"  # set by `up` for what it starts


def folder_name(data_dir: Path) -> str:
    """A short name of a data folder."""
    return hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]


def place_name(data_dir: Path) -> str:
    """Of a data folder on this host: the same after a new start."""
    return f"{socket.gethostname()[:80]}:{folder_name(data_dir)}"


def worker_name() -> str:
    """Of this process: its place, and its process id."""
    return f"{os.environ.get(PLACE) or socket.gethostname()[:80]}:{os.getpid()}"
