"""What a node watches for the whole fleet: queues that nobody serves, and schedules whose health changes."""
