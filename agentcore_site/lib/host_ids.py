"""Ids of hosts and data folders: a host has one for each data folder on which ``manage.py up`` runs."""

from __future__ import annotations

import hashlib
import os
import socket
from functools import cache
from pathlib import Path
from typing import Final

HOST_ID_VARIABLE: Final = "WORKER_PLACE"  # set by `up` for what it starts


def folder_name(data_dir: Path) -> str:
    """A short name of a data folder."""
    return hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]


def host_id(data_dir: Path) -> str:
    """The id of a data folder on this host: the same after a restart."""
    return f"{socket.gethostname()[:70]}:{folder_name(data_dir)}"


def process_host_id(data_dir: Path) -> str:
    """The same with an id of the kernel and container: hosts may share a name, and a process id is unique only in its
    own namespace."""
    return f"{host_id(data_dir)}:{_process_space()}"


@cache
def _process_space() -> str:
    """Id of this kernel since its boot, and of the container; "" if Linux does not give it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return hashlib.sha256(f"{boot} {os.readlink('/proc/self/ns/pid')}".encode()).hexdigest()[:12]
    except OSError:
        return ""


def worker_name() -> str:
    """Name of this process: its host id, and its process id."""
    return f"{os.environ.get(HOST_ID_VARIABLE) or socket.gethostname()[:70]}:{os.getpid()}"
