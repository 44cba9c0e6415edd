"""Asks the engine about all runs at once, and about each alone when one of them spoils the answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from batchhvd.engines.base import Engine, Status, StopReason, TaskState
from batchhvd.errors import EngineError

log = logging.getLogger("batchhvd.service.scheduler.inquiry")


def statuses(engine: Engine, handles: Sequence[str]) -> Mapping[str, Status]:
    """Returns the status of each run that the engine can tell of now.

    A run whose records are damaged (a job can write there, and a power cut can leave a part of a file) has failed; the
    others are not affected. A run that the engine cannot be asked about for now, such as while its controller is
    away, is left out.
    """
    if not handles:
        return {}
    try:
        return engine.status(handles)
    except Exception:
        log.exception("the engine could not tell of %d runs at once; it is asked about each", len(handles))
    return {handle: status for handle in handles if (status := _alone(engine, handle)) is not None}


def _alone(engine: Engine, handle: str) -> Status | None:
    try:
        return engine.status([handle]).get(handle)
    except (EngineError, OSError):
        return None
    except Exception as error:
        log.exception("the records of run %s are damaged", handle)
        _cancel(engine, handle)
        told = f"the records of its run in {handle} are damaged: {type(error).__name__}: {error}"
        return Status(state=TaskState.FAILED, reason=StopReason.ENGINE, error=told)


def _cancel(engine: Engine, handle: str) -> None:
    """Ends what may still run; damaged records must not keep the job from ending."""
    try:
        engine.cancel(handle)
    except Exception:
        log.exception("run %s could not be cancelled", handle)
