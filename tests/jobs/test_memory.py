"""The collector does not walk what a worker has loaded for ever."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, os
from agentcore_site.lib import gc_freeze
loaded = [[] for _ in range(50_000)]
gc_freeze.settle()
frozen, seen = gc.get_freeze_count(), len(gc.get_objects())
assert frozen > 50_000 > seen, (frozen, seen)
later = [[] for _ in range(20_000)]
gc_freeze.settle()
assert gc.get_freeze_count() == frozen and len(gc.get_objects()) > 20_000
if os.fork() == 0:
    gc_freeze.settle()
    os._exit(0 if gc.get_freeze_count() > frozen + 20_000 else 1)
assert os.wait()[1] == 0
"""

FORKED = """
import gc, os
from agentcore_site.lib import gc_freeze
loaded = [[] for _ in range(50_000)]
gc_freeze.before_fork()
shared = gc.get_freeze_count()
assert shared > 50_000 > len(gc.get_objects())
later = [[] for _ in range(20_000)]
gc_freeze.before_fork()
assert gc.get_freeze_count() == shared and len(gc.get_objects()) > 20_000
if os.fork() == 0:  # a child walks what is its own alone
    gc_freeze.settle()
    os._exit(0 if gc.get_freeze_count() > shared + 20_000 else 1)
assert os.wait()[1] == 0
"""


def test_loaded_objects_are_frozen_once_in_each_process() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


def test_objects_loaded_before_a_fork_are_frozen_for_all_children() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
