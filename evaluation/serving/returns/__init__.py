"""Return on what agents' learning cost, by agent and month."""
