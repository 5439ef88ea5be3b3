"""IronMQ is a queue and not a store, so it has no counterpart here."""

raise ImportError(
    "mainspring has no broker for IronMQ, because a queue alone cannot track runs: use the database (orm) or redis in "
    "Q_CLUSTER, or keep django-q for this queue"
)
