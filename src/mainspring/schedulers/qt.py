"""A scheduler for Qt programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from mainspring.errors import install_command
from mainspring.events import SchedulerEvent
from mainspring.schedulers.base import BaseScheduler

__all__ = ["QtScheduler"]

_BINDINGS = ("PySide6", "PyQt6", "PySide2", "PyQt5")


def _core() -> Any:
    """Return QtCore from the imported Qt binding, or from an installed one if none is imported."""
    for name in sorted(_BINDINGS, key=lambda binding: binding not in sys.modules):
        try:
            return import_module(f"{name}.QtCore")
        except ImportError:
            continue
    raise ImportError(f"QtScheduler needs PySide or PyQt, which are not installed: {install_command('qt')}")


class QtScheduler(BaseScheduler):
    """A scheduler that runs jobs in threads, and calls listeners on the Qt event loop's thread."""

    def __init__(self, gconfig: Mapping[str, Any] = {}, **options: Any) -> None:
        core = _core()
        signal = getattr(core, "Signal", None) or core.pyqtSignal

        class Relay(core.QObject):  # type: ignore[misc, name-defined]
            """An object that carries events to the thread that made the scheduler."""

            arrived = signal(object)

            def tell(relay, event: SchedulerEvent) -> None:
                self._listeners.call(event)

        self._core = core
        self._relay = Relay()
        super().__init__(gconfig, **options)
        # Connect to a method of a QObject: Qt calls it on the QObject's thread.
        self._relay.arrived.connect(self._relay.tell)

    def _deliver(self, event: SchedulerEvent) -> None:
        if self._core.QCoreApplication.instance() is None:
            super()._deliver(event)
        else:
            self._relay.arrived.emit(event)  # direct on the loop's thread, queued from any other
