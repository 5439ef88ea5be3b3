"""The verbs that explain the past and simulate the future."""
