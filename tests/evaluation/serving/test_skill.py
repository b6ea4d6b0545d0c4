"""A release as a signed skill: every changed byte is found, and what comes back is what went out."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from django.test import Client

from evaluation.serving.releases.skill import (
    SIGNATURE,
    SKILL,
    Skill,
    SkillError,
    public_key,
    skill_archive,
    skill_name,
    verified,
)

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
MADE = Skill(
    "support-3",
    "Prompt and 2 lessons.\n---\nname: other",
    "You answer.\nBriefly — “so”.",
    ["When a date is asked for, say it as 2026-11-28.", "When 日本 is named, answer: \"yes\" \\ 'no' # {x}"],
    {"agentcore-digest": "ab" * 32, "agentcore-gain": "4.2 points: [1, 7]\u2028---", "agentcore-model": "small"},
)


def files_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes]) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return found.getvalue()


def test_what_comes_back_is_what_went_out_and_equal_skills_are_equal_bytes() -> None:
    data = skill_archive(MADE, KEY)
    found = verified(data, public_key(KEY))
    assert (found.skill, found.faults, found.key) == (MADE, (), public_key(KEY))
    assert skill_archive(MADE, KEY) == data


def test_the_front_matter_is_that_of_the_specification() -> None:
    text = files_of(skill_archive(MADE, KEY))[f"support-3/{SKILL}"].decode()
    _, front, body = text.split("---\n", 2)
    read = yaml.safe_load(front)
    assert set(read) == {"name", "description", "metadata"} and read["name"] == "support-3"
    assert read["description"] == "Prompt and 2 lessons. --- name: other"
    assert all(isinstance(value, str) for value in read["metadata"].values())
    assert set(read["metadata"]) == set(MADE.facts)
    assert all(lesson in body for lesson in MADE.lessons) and MADE.prompt in body
    long = skill_archive(Skill("a", "x" * 5_000, "p", [], {}), KEY)
    assert len(yaml.safe_load(files_of(long)["a/SKILL.md"].decode().split("---\n")[1])["description"]) == 1_024


@pytest.mark.parametrize("text", ["Support Desk-7", "--", "日本", "a" * 99 + "-b", "x" * 63 + "-y", "A__b"])
def test_names_are_allowed_ones(text: str) -> None:
    name = skill_name(text)
    assert 0 < len(name) <= 64 and "--" not in name and name.strip("-") == name
    assert all(sign.isascii() and (sign.islower() or sign.isdigit() or sign == "-") for sign in name)


def test_a_changed_byte_is_found_in_each_file() -> None:
    files = files_of(skill_archive(MADE, KEY))
    for name, data in files.items():
        for at in random.sample(range(len(data)), 60):
            altered = bytearray(data)
            altered[at] ^= random.choice([1, 2, 4, 32])
            try:
                found = verified(packed(files | {name: bytes(altered)}), public_key(KEY))
            except SkillError:
                continue
            assert found.skill is None and found.faults, (name, at)
            if not name.endswith(SIGNATURE):
                assert found.faults == (f"{name.partition('/')[2]} was changed since it was signed.",)


def test_another_key_another_folder_and_other_files_are_found() -> None:
    files = files_of(skill_archive(MADE, KEY))
    assert verified(skill_archive(MADE, OTHER), public_key(KEY)).faults == ("Another key signed it.",)
    renamed = {name.replace("support-3", "refunds-1"): data for name, data in files.items()}
    assert verified(packed(renamed)).faults == ("The folder was renamed since it was signed.",)
    odd: list[dict[str, bytes]] = [
        {},
        {"support-3/SKILL.md": b"x"},
        files | {"support-3/scripts/run.sh": b"rm"},
        files | {"../SKILL.md": b"x"},
        files | {f"support-3/{SIGNATURE}": b"[]"},
        files | {f"support-3/{SIGNATURE}": b"\xff"},
    ]
    for one in odd:
        with pytest.raises(SkillError):
            verified(packed(one))
    for data in (b"", b"no archive", skill_archive(MADE, KEY)[:300]):
        with pytest.raises(SkillError):
            verified(data)


def test_a_file_that_unpacks_to_too_much_is_refused() -> None:
    files = files_of(skill_archive(MADE, KEY)) | {f"support-3/{SKILL}": b"0" * (17 * 2**20)}
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert len(found.getvalue()) < 2**20
    with pytest.raises(SkillError, match="at most 16 MB"):
        verified(found.getvalue())


def test_the_command_verifies_and_names_what_was_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "skill.zip"
    file.write_bytes(skill_archive(MADE, KEY))
    call_command("skill", "verify", str(file), "--key", public_key(KEY))
    printed = json.loads(capsys.readouterr().out)
    assert printed["agentcore-digest"] == "ab" * 32
    assert printed["fingerprint"] == hashlib.sha256(KEY.public_key().public_bytes_raw()).hexdigest()
    files = files_of(file.read_bytes())
    file.write_bytes(packed(files | {f"support-3/{SKILL}": files[f"support-3/{SKILL}"] + b" "}))
    with pytest.raises(CommandError, match=r"SKILL\.md was changed"):
        call_command("skill", "verify", str(file))
    with pytest.raises(CommandError, match="can't be read"):
        call_command("skill", "verify", str(tmp_path / "none"))


@pytest.mark.django_db
def test_a_release_is_exported_with_its_proof_by_page_and_rest(client: Client, olivia: Any, operator: Any) -> None:
    from evaluation.serving.releases.services import release_make
    from evaluation.serving.releases.skills import signing_key
    from tests import factories

    organization = olivia.memberships.get().organization
    endpoint = factories.ModelEndpointFactory(organization=organization)
    agent = factories.AgentFactory(
        organization=organization, runtime="llm", endpoint=endpoint, system_prompt="Be brief.", slug="desk"
    )
    factories.ExperienceFactory(agent=agent, handle="x1", status="active", summary="When asked, say it plainly.")
    release = release_make(operator, agent)
    client.force_login(olivia)
    for path in (f"/releases/{release.pk}/skill/", f"/api/v1/releases/{release.pk}/skill"):
        answer = client.get(path)
        assert answer.status_code == 200 and 'filename="desk-1.zip"' in answer["Content-Disposition"]
        found = verified(answer.content, public_key(signing_key(organization.pk)))
        assert found.skill is not None and list(found.skill.lessons) == ["When asked, say it plainly."]
        assert found.skill.facts["agentcore-digest"] == release.digest
        assert endpoint.base_url not in str(files_of(answer.content))
