"""Console pages of agents, model endpoints and tool servers."""
