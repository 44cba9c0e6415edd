"""The command ``tutorial`` as a part of a longer program: what it leaves as it was."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from batchhvd.cli import main as cli
from batchhvd.cli import walkthrough


def test_the_handler_of_sigterm_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(walkthrough, "run", lambda *_, **__: 0)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.run(["tutorial", "--root", str(tmp_path)]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_sigterm_interrupts_and_the_handler_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def terminated(*_: object, **__: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        return 0

    monkeypatch.setattr(walkthrough, "run", terminated)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.run(["tutorial", "--root", str(tmp_path)]) == cli.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_in_a_thread_that_may_not_handle_signals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(walkthrough, "run", lambda *_, **__: 7)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cli.run(["tutorial", "--root", str(tmp_path)])))
    thread.start()
    thread.join()
    assert codes == [7]
