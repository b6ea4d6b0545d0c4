"""Keys that call models through the gateway, and what they spend."""
