"""REST: agents, model endpoints, tool servers, environments."""
