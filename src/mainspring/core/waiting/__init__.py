"""What a run may wait for: other runs (flows, hooks, results as arguments), or a slot of its gate."""
