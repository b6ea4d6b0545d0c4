"""Why a single sign-on did not work."""

from __future__ import annotations

from agentcore_site.lib.errors import Forbidden, Unavailable


class SignOnRefused(Forbidden):
    """The provider's answer does not fit the request, or its person may not come in."""


class ProviderUnavailable(Unavailable):
    """The provider can't be asked, or does not answer as one."""
