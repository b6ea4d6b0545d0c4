"""The command line: `manage.py` of a checkout, and `agentcore` where the wheel is installed."""

from __future__ import annotations

import os
import sys
from typing import Final

# Commands that work as the owner of the tables; all others work with the application's role, which may change less.
OWNER_COMMANDS: Final = ("migrate",)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentcore_site.settings")
    if sys.argv[1:2] and sys.argv[1] in OWNER_COMMANDS:
        os.environ.setdefault("DATABASE_AS_OWNER", "1")
    from django.core.management import execute_from_command_line

    from agentcore_site.lib import row_scope

    row_scope.outside(row_scope.EVERYTHING)  # an operator's command works across organisations

    from agentcore_site.env import BadEnvironment

    try:
        execute_from_command_line(sys.argv)
    except BadEnvironment as error:
        sys.exit(str(error))
