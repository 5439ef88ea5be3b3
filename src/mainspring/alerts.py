"""Alerts about the health of jobs: `Webhook` and `Alert` for senders, `verify` for receivers."""

from mainspring.core.insight.alerts import Alert
from mainspring.node.watch.webhook import SIGNATURE_HEADER, Webhook, verify

__all__ = ["SIGNATURE_HEADER", "Alert", "Webhook", "verify"]
