"""The lines of the documentation that verify a webhook's signature by hand, run by a shell."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from agentcore_site import env
from agentcore_site.ids import uuid7
from agentcore_site.outbound.webhooks import standard_headers, standard_secret
from tests.support.receiver import receiving

PAGE = env.ROOT / "docs" / "webhooks.md"
BODIES = [b"{}", '{"text": "Ça va 🙂"}\n\n'.encode(), b'{"a": "\\u0000 % $HOME `x`"}\x00\xff', b"x" * 100_000]


def blocks() -> list[str]:
    """The lines of the section, as a reader copies them: the signature, and a message that is signed so."""
    section = PAGE.read_text(encoding="utf-8").split("## Verify a message")[1].split("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def run(shell: str, lines: str, folder: Path, **given: str) -> str:
    command = [shell, "-eu", "-c", lines]
    about = {"PATH": os.environ["PATH"], **given}
    done = subprocess.run(command, env=about, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("body", BODIES, ids=["small", "words", "odd bytes", "long"])
def test_the_lines_of_the_documentation_make_our_signature(shell: str, body: bytes, tmp_path: Path) -> None:
    by_hand, _ = blocks()
    (tmp_path / "body.json").write_bytes(body)
    for key in (os.urandom(32), bytes(24), b"\xff" * 64):
        secret, id, at = standard_secret(key), str(uuid7()), "1795552245"
        result = run(shell, by_hand, tmp_path, SECRET=secret, ID=id, TIMESTAMP=at)
        expected = standard_headers(secret, id, int(at), body)["webhook-signature"]
        assert f"v1,{result}" == expected


def test_the_lines_of_the_documentation_send_what_a_receiver_takes_for_ours(tmp_path: Path) -> None:
    by_hand, sending = blocks()
    body = '{"type": "webhook.test", "text": "é"}\n'.encode()
    (tmp_path / "body.json").write_bytes(body)
    secret, id = standard_secret(os.urandom(32)), str(uuid7())
    given = {"SECRET": secret, "ID": id, "TIMESTAMP": "1795552245"}
    signature = run("sh", by_hand, tmp_path, **given)
    with receiving() as receiver:
        result = run("sh", sending, tmp_path, **given, SIGNATURE=signature, URL=receiver.url)
    [(headers, came)] = receiver.came
    expected = standard_headers(secret, id, 1795552245, body)
    assert came == body and "200" in result and {name: headers[name] for name in expected} == expected
