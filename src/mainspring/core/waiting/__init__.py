"""The reasons for which a run waits: other runs (flows, hooks, results as arguments), or a slot of its gate."""
