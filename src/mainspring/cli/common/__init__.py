"""Helpers of all verbs: find the app, report failures, print."""
