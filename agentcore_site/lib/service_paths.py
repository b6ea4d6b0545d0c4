"""Folders of embedded services' data and programs, and the users that run them.

Started by root, each runs as a user of its own, who must be able to reach data and programs. No folder of a person is
opened for that: where the way is closed (a home of mode 0700, say), data lie in a folder of their own under
/var/lib and the programs are copied beside them.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MINIMUM_FREE = 256 * 1024 * 1024
POINTER = "services.place"
# Users of services where root starts them, also their groups. Neither Debian nor systemd gives these numbers (65520 to
# 65533) away, and none needs an entry in /etc/passwd. The sandbox has 65524 (``experiences.rollouts.code.isolation``).
USERS: Final = {"postgres": 65521, "valkey": 65522, "nats": 65523}


class CannotStart(Exception):
    """The reason why the embedded services can't start, with the remedy."""


@dataclass(frozen=True)
class ServicePaths:
    """``folder`` holds the services' data. ``own_users``: each runs as its user in ``USERS``, else all as the user of
    this process."""

    folder: Path
    own_users: bool

    def user(self, name: str) -> int | None:
        """The user of a service; None: the user of this process."""
        return USERS[name] if self.own_users else None

    def run_as(self, name: str) -> dict[str, Any]:
        """The arguments of ``subprocess`` for a process of that user."""
        return as_user(self.user(name))

    def make(self, name: str) -> Path:
        """A folder for one service, for its user alone. Data of an earlier release, whose user was another, are given
        to it."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.give(folder, name)
        return folder

    def give(self, path: Path, name: str) -> None:
        """Gives a file, or a folder with all in it, to the user of a service."""
        if (user := self.user(name)) is not None:
            give(path, user)

    def program(self, folder: Path, name: str) -> Path:
        """``folder`` itself if the services' user can reach it, else a copy within the user's reach."""
        if not self.own_users or walkable(folder):
            return folder
        copy = self.folder / "programs" / name
        if not copy.exists():
            temporary = copy.with_name(f".{name}.{os.getpid()}")
            shutil.copytree(folder, temporary, symlinks=True)
            for path in (temporary, *temporary.rglob("*")):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
            temporary.rename(copy)
        return copy

    def executable(self, path: Path) -> Path:
        """A program of one file: the file itself if the services' user can reach it, else a copy within the user's
        reach."""
        if not self.own_users or walkable(path.parent):
            return path
        copy = self.folder / "programs" / path.name
        if not copy.exists():
            temporary = copy.with_name(f".{path.name}.{os.getpid()}")
            shutil.copyfile(path, temporary)
            temporary.chmod(0o755)
            temporary.rename(copy)
        return copy


def as_user(user: int | None) -> dict[str, Any]:
    """The arguments of ``subprocess`` for a process of ``user``, in no group but its own."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def give(path: Path, user: int) -> None:
    """Makes ``user`` the owner of a file, or of a folder with all in it. The folder comes last: until it is given, an
    interrupted run is repeated. Links are not followed."""
    if path.lstat().st_uid == user:
        return
    if path.is_dir():
        for _, folders, files, at in os.fwalk(path):
            for name in (*folders, *files):
                os.chown(name, user, user, dir_fd=at, follow_symlinks=False)
    os.chown(path, user, user, follow_symlinks=False)


def walkable(path: Path) -> bool:
    """True if any user of the host may traverse the folders down to ``path``."""
    try:
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents) if folder.is_dir())
    except PermissionError:
        return False


def place_for(data_dir: Path) -> ServicePaths:
    """Chooses and creates the folder for a data folder, and checks that the disk has room.

    Raises:
        CannotStart: the folder can't be written, or the disk is full.
    """
    try:
        if os.geteuid() != 0:
            place = ServicePaths(data_dir / "services", own_users=False)
            place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            place = _place_for_root(data_dir)
    except OSError as error:
        raise CannotStart(f"{data_dir} can't be used: {error.strerror}. Set DATA_DIR to a folder of yours.") from error
    free = shutil.disk_usage(place.folder).free
    if free < MINIMUM_FREE:
        raise CannotStart(
            f"The disk of {place.folder} is full: {free // 2**20} MiB free, at least {MINIMUM_FREE // 2**20} needed. "
            "Free some room, or set DATA_DIR to another disk."
        )
    return place


def services_folder(data_dir: Path) -> Path:
    """The folder of the embedded services' data: in the data folder, or the one that ``services.place`` there names."""
    try:
        return Path((data_dir / POINTER).read_text(encoding="utf-8").strip())
    except OSError:
        return data_dir / "services"


def _place_for_root(data_dir: Path) -> ServicePaths:
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o711)
    # The name is stored in the data folder: without that folder a start is a first start, and meets no old data.
    if not walkable(data_dir) and not (data_dir / POINTER).exists():
        (data_dir / POINTER).write_text(f"/var/lib/agentcore/{secrets.token_hex(6)}", encoding="utf-8")
    folder = services_folder(data_dir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o711)
    (folder / "programs").mkdir(exist_ok=True, mode=0o711)
    for mine in (folder, folder / "programs"):  # the mode of mkdir is cut by the umask
        mine.chmod(0o711)
    return ServicePaths(folder, own_users=True)


def wheel_folder(package: str) -> Path:
    """Folder of an installed package, without importing it (the import of some has side effects).

    Raises:
        CannotStart: it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise CannotStart(
            f"The package {package} is not installed. Install the requirements, or set the service's URL."
        )
    return Path(spec.origin).parent
