"""Builds Horovod once for the installed Keras backends, keeps the wheel, installs it and verifies it."""

from __future__ import annotations

from batchhvd.trainer.install.installation import COMMAND, installed
from batchhvd.trainer.install.installer import install

__all__ = ["COMMAND", "install", "installed"]
