"""The store's tables as models: read and filter them with the ORM, but write through the verbs."""

from mainspring.django.models.records import (
    ActRecord,
    BrokenJobRecord,
    DeletedRunRecord,
    GateRecord,
    Job,
    NodeRecord,
    OutboxRecord,
    QueueRecord,
    TallyRecord,
)
from mainspring.django.models.runs import Failure, OrmQ, Run, Success, Task
from mainspring.django.models.schedules import Schedule

__all__ = [
    "ActRecord",
    "BrokenJobRecord",
    "DeletedRunRecord",
    "Failure",
    "GateRecord",
    "Job",
    "NodeRecord",
    "OrmQ",
    "OutboxRecord",
    "QueueRecord",
    "Run",
    "Schedule",
    "Success",
    "TallyRecord",
    "Task",
]
