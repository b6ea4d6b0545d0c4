"""reasoning-gym is imported without the plotting library, and other importers keep it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough(reason="each starts a process that imports a large library")


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_lean_import_leaves_the_plotting_library_out() -> None:
    seen = python(
        "import sys; from experiences.rollouts.environments.lean_import import reasoning_gym as rg;"
        "rg(); print('matplotlib' in sys.modules, 'cellpylib' in sys.modules)"
    )
    assert seen == "False True"


def test_a_generator_on_that_package_still_makes_and_scores_its_items() -> None:
    seen = python(
        "from experiences.rollouts.environments.lean_import import reasoning_gym as rg;"
        "ds = rg().create_dataset('game_of_life', size=2, seed=1);"
        "print([ds.score_answer(x['answer'], x) for x in ds])"
    )
    assert seen == "[1.0, 1.0]"


def test_the_first_use_of_the_plotting_library_loads_the_real_one() -> None:
    seen = python(
        "import sys; from experiences.rollouts.environments.lean_import import reasoning_gym as rg; rg();"
        "import cellpylib.ca_functions as part; late = part.plt.figure.__module__;"
        "import matplotlib; print(late, matplotlib.__version__ != '')"
    )
    assert seen == "matplotlib.pyplot True"


def test_one_module_can_be_asked_for() -> None:
    script = (
        "from experiences.rollouts.environments.lean_import import reasoning_gym as rg;"
        "print(len(rg('factory').DATASETS))"
    )
    assert int(python(script)) > 100


def test_a_worker_imports_the_tool_protocol_only_where_a_server_is_used() -> None:
    seen = python(
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'agentcore_site.settings';"
        "import django; django.setup();"
        "import agentcore_site.celery, agentcore_site.tasks, training.services.execution, evaluation.execution;"
        "print('mcp' in sys.modules, 'scipy' in sys.modules, 'reasoning_gym' in sys.modules)"
    )
    assert seen == "False False False"
