"""Whether a release may go out, as pure values: what was measured of it, and what its agent's rule asks."""
