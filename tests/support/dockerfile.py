"""Does what a Dockerfile says without an engine: each stage in a folder of its own that is its root.

Absolute paths of instructions are taken as of that folder. What a base image brings (here Python) is the machine's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

OURS = re.compile(r"(?<![\w./-])/(?=(?:build|data|opt|srv)\b)")  # where a path of the image begins
# The way from this machine to the package index, which an engine would need as well.
NETWORK = {
    name: value
    for name, value in os.environ.items()
    if name.startswith(("PIP_", "UV_", "SSL_")) or name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
}


@dataclass
class Stage:
    """``root`` is ``/``; what ``path`` gives is to be run or read on this machine."""

    root: Path
    environment: dict[str, str]
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    user: str = "0"

    def path(self, text: str) -> str:
        return OURS.sub(f"{self.root}/", text)

    def place(self, name: str) -> Path:
        return self.root / (name if name.startswith("/") else f"{self.folder}/{name}").lstrip("/")

    def run(self, command: list[str], as_user: dict[str, int], **more: str) -> subprocess.Popen[str]:
        """Starts a command in the stage's folder, with its environment and no other."""
        return subprocess.Popen(
            command,
            cwd=self.place(""),
            env=self.environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **as_user,  # type: ignore[call-overload]
        )


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction's word and the rest of its line, continued lines joined and comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined if line.strip())]


def built(path: Path, context: Path, folder: Path, python: str, as_user: dict[str, int]) -> Stage:
    """The last stage, after each step was done by that user. Raises AssertionError with a step's output."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder, {})
    for word, rest in instructions(path):
        match word:
            case "FROM":
                name = rest.split()[-1]
                root = folder / f"stage{len(stages)}"
                (root / "bin").mkdir(parents=True)
                (root / "bin" / "python").symlink_to(python)
                stage = stages[name] = Stage(root, {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": str(root)})
                _given(root, as_user)
            case "WORKDIR":
                stage.folder = rest
                stage.place("").mkdir(parents=True)
                _given(stage.place(""), as_user)
            case "ENV":
                for part in shlex.split(rest):
                    name, _, value = part.partition("=")
                    stage.environment[name] = stage.path(value).replace("$PATH", stage.environment["PATH"])
            case "COPY":
                *options, last = shlex.split(rest)
                sources = [one for one in options if not one.startswith("--")]
                taken = [one.removeprefix("--from=") for one in options if one.startswith("--from=")]
                for source in sources:
                    found = stages[taken[0]].place(source) if taken else context / source
                    _copied(found, stage.place(last), into=last.endswith("/"), link=bool(taken))
                if not taken:
                    _given(stage.place(last), as_user)
            case "RUN":
                step = stage.run(["/bin/sh", "-euc", stage.path(rest)], as_user, **NETWORK)
                output, _ = step.communicate(timeout=300)
                assert step.returncode == 0, f"RUN {rest}\n{output[-3000:]}"
            case "ENTRYPOINT":
                stage.entrypoint = json.loads(rest)
            case "CMD":
                stage.command = json.loads(rest)
            case "HEALTHCHECK":
                stage.health = json.loads(rest.partition("CMD ")[2])
            case "USER":
                stage.user = rest
            case "VOLUME" | "EXPOSE" | "STOPSIGNAL":
                pass
            case _:
                raise AssertionError(f"{word} is not known here")
    return stage


def _copied(source: Path, target: Path, *, into: bool, link: bool) -> None:
    """``link``: by hard links, since no step changes what an earlier stage made."""
    if source.is_dir():
        ignored = None if link else shutil.ignore_patterns("__pycache__", "*.pyc")
        copy = os.link if link else shutil.copy2
        shutil.copytree(source, target, symlinks=True, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target / source.name if into else target)


def _given(root: Path, as_user: dict[str, int]) -> None:
    if as_user:
        subprocess.run(["chown", "--recursive", f"{as_user['user']}:{as_user['group']}", str(root)], check=True)
