"""JSON-RPC methods of training, and the shapes of their results."""
