"""The watches of a node: changes of its store, orders, unserved queues, the health of jobs, and alerts about it."""
