"""Today's azure-cli: every verb of az storage share, directory and file that the service has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SHARE, FILE = "--share-name clients-az", "--share-name clients-az --path a/f.txt"
# One line a command; {…} are files of the working directory, {snapshot} and {hour} are filled in.
COMMANDS = f"""
share create -n clients-az --quota 2 --metadata one=1
share exists -n clients-az
share list --include-metadata
share show -n clients-az
share stats -n clients-az
share url -n clients-az
share update -n clients-az --quota 3
share metadata update -n clients-az --metadata two=2
share metadata show -n clients-az
share policy create {SHARE} -n reading --permissions rl --expiry {{hour}}
share policy list {SHARE}
share policy show {SHARE} -n reading
share policy update {SHARE} -n reading --permissions r
share generate-sas -n clients-az --permissions rl --expiry {{hour}}
share list-handle -n clients-az --recursive
share close-handle -n clients-az --close-all
directory create {SHARE} -n a
directory exists {SHARE} -n a
directory list {SHARE}
directory show {SHARE} -n a
directory metadata update {SHARE} -n a --metadata one=1
directory metadata show {SHARE} -n a
file upload {SHARE} --source local.txt --path a/f.txt
file exists {FILE}
file list {SHARE} --path a
file show {FILE}
file url {FILE}
file metadata update {FILE} --metadata one=1
file metadata show {FILE}
file update {FILE} --content-type text/plain
file resize {FILE} --size 512
file download {FILE} --dest .
file generate-sas {FILE} --permissions r --expiry {{hour}}
file copy start --destination-share clients-az --destination-path copied --source-share clients-az --source-path a/f.txt
file upload-batch --source batch --destination clients-az
file download-batch --source clients-az --destination .
file copy start-batch --source-share clients-az --destination-share clients-az --destination-path all
file delete-batch --source clients-az --pattern batch*
share snapshot -n clients-az
file delete {FILE}
directory delete {SHARE} -n a
share policy delete {SHARE} -n reading
cors add --services f --methods GET --origins https://example.org
cors list --services f
cors clear --services f
share delete -n clients-az --delete-snapshots include
"""


def main() -> int:
    """Runs all commands; 1 if one failed."""
    Path("local.txt").write_text("data")
    Path("batch").mkdir(exist_ok=True)
    Path("batch", "batch1").write_text("one")
    connection = ["--connection-string", os.environ["CONNECTION"], "-o", "json", "--only-show-errors"]
    failed = 0
    for line in filter(None, COMMANDS.splitlines()):
        words = line.format(hour="2040-01-01T00:00Z").split()
        command = [sys.executable, "-m", "azure.cli", "storage", *words, *connection]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = " ".join(done.stderr.split())[-200:]
        failed += bool(done.returncode)
        name = " ".join(word for word in words[:3] if word.replace("-", "").isalpha() and not word.startswith("-"))
        print(f"FAIL az storage {name}: {told}" if done.returncode else f"ok az storage {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
