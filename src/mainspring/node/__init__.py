"""The engine: a node and its loops. Start reading in `node.node`."""
