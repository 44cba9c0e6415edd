"""``python -m batchhvd.trainer.install``: see `installer`."""

from __future__ import annotations

from batchhvd.trainer.install.installer import main

if __name__ == "__main__":
    raise SystemExit(main())
