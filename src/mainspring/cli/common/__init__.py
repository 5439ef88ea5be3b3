"""Helpers for all verbs: find the app, report failures, print."""

import errno

OUTPUT_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EIO)
"""The errors of a stdout that accepts no more output."""
