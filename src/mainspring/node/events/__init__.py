"""What a node tells: events to listeners, lines in the log, each about a problem once."""
