"""The job kind that encrypts stored rows."""

from __future__ import annotations

from agentcore_site.encryption.services import KIND
from agentcore_site.jobs.kinds import Progressed, kinds
from agentcore_site.jobs.lease import Lease
from agentcore_site.jobs.models import Job


@kinds.register(KIND)
class EncryptionKind:
    """Slices of rows to be encrypted, decrypted, or encrypted by another key."""

    @staticmethod
    def advance(job: Job, lease: Lease) -> Progressed:
        from agentcore_site.encryption.reencryption import reencryption_slice

        return reencryption_slice(job, lease)

    @staticmethod
    def stopped(job: Job) -> None:
        """Does nothing: each row records its own state."""

    @staticmethod
    def resume_check(job: Job) -> None:
        """Allows every resume."""
