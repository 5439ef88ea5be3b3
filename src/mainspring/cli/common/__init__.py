"""What the verbs share: which app they act on, how they fail, how they print."""
