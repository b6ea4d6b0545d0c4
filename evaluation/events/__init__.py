"""Events with other programs over NATS JetStream: publishes local events, and receives those of agents elsewhere."""
