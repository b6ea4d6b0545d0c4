"""Events with other programs over NATS JetStream: what happened here goes out, what agents elsewhere lived comes in."""
