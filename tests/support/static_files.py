"""Each test client loads the middleware again, and WhiteNoise then stats every static file: 50 ms, once some test has
collected them. Here they are read once, as in a web process, and again where others were collected."""

from __future__ import annotations

import os
from typing import Any

from whitenoise.base import WhiteNoise

_original_add_files = WhiteNoise.add_files
_found: dict[tuple[Any, ...], dict[str, Any]] = {}


def _add_files(self: WhiteNoise, root: Any, prefix: str | None = None) -> None:
    if self.autorefresh or not os.path.isdir(root):
        _original_add_files(self, root, prefix)
        return
    # What is collected ends with its list, `staticfiles.json`, which is a new file in the folder.
    key = (str(root), prefix, os.stat(root).st_mtime_ns, self.max_age, self.allow_all_origins, self.charset)
    if key not in _found:
        before = set(self.files)
        _original_add_files(self, root, prefix)
        _found[key] = {url: file for url, file in self.files.items() if url not in before}
    self.files.update(_found[key])


def read_once() -> None:
    WhiteNoise.add_files = _add_files
