"""Makes pages of the site from the documents at the root of the repository, and mends the links that lead to them.

The pages are written for a reader on a code host, where ``../SECURITY.md`` is right. MkDocs knows only files below
docs/, so each named file joins the site under ``project/``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def on_files(files: Any, config: Any) -> Any:
    for name in NAMES:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](../")
        files.append(File.generated(config, f"project/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    up = "../" * page.file.src_uri.count("/")
    for name in NAMES:
        markdown = markdown.replace(f"](../{up}{name}", f"]({up}project/{name}")
    return markdown
