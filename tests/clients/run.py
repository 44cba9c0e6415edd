"""``make clients``: storage clients, unmodified, each in an environment of its own, against this checkout's service.

The environments are made once, in the user's cache. Each client prints a line per step; the table at the end counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from batchhvd.testing.batchai import BatchAIService

_HERE = Path(__file__).parent
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchhvd" / "clients"


@frozen
class StorageClient:
    """One client.

    Attributes:
        name: as the table shows it.
        place: its environment in the cache.
        packages: what is installed there.
        script: what runs it.
        style: ``path``, or ``host`` for Azure's own names by the service's proxy and certificate.
    """

    name: str
    place: str
    packages: tuple[str, ...]
    script: str
    style: str = "path"


# Steps that fail by the client's own fault: (name, step): why.
KNOWN = {
    ("@azure/storage-file-share, path style", "rename"): "the client puts the share in the place of the account's name",
}
NODE = ("@azure/storage-file-share",)
NEWEST, OLDEST = (("azure-storage-file-share" + pin, "aiohttp") for pin in ("", "==12.20.0"))
LEGACY = ("azure-storage-file==2.1.0", "setuptools")
CLIENTS = (
    StorageClient("azure-storage-file-share, newest", "newest", NEWEST, "sync_client.py"),
    StorageClient("azure-storage-file-share, newest, aio", "newest", (), "aio_client.py"),
    StorageClient("azure-storage-file-share 12.20.0", "oldest", OLDEST, "sync_client.py"),
    StorageClient("azure-storage-file-share 12.20.0, aio", "oldest", (), "aio_client.py"),
    StorageClient("azure-storage-file 2.1.0", "legacy", LEGACY, "legacy_client.py"),
    StorageClient("azure-multiapi-storage", "multiapi", ("azure-multiapi-storage",), "multiapi_client.py"),
    StorageClient("@azure/storage-file-share, path style", "node", NODE, "node_client.mjs"),
    StorageClient("@azure/storage-file-share, host style", "node", NODE, "node_client.mjs", "host"),
    StorageClient("azcopy", "azcopy", ("azure-storage-blob",), "azcopy_client.py"),
    StorageClient("azure-cli, host style", "cli", ("azure-cli",), "az_client.py", "host"),
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Runs all clients, or those whose names contain an argument; 1 if a step failed."""
    chosen = [each for each in CLIENTS if not arguments or any(word in each.name for word in arguments)]
    with tempfile.TemporaryDirectory(prefix="clients") as folder:
        service = BatchAIService(Path(folder), "--tls")
        try:
            with service.group() as group:
                account = group.group.create_storage_account("clientsaccount")
                key = account.read_key()
                os.environ["BLOB_ENDPOINT"] = account.blob_endpoint
                results = [(each, run(each, account.endpoint, account.name, key, Path(folder))) for each in chosen]
        finally:
            service.close()
    return report(results)


def report(results: list[tuple[StorageClient, list[str]]]) -> int:
    """Prints a line for each client; returns 1 if a step failed that is not known to."""
    print()
    unknown = 0
    for client, lines in results:
        failed = [line for line in lines if not line.startswith("ok ")]
        known = [why for (name, step), why in KNOWN.items() for line in failed
                 if name == client.name and line.startswith(f"FAIL {step}:")]  # fmt: skip
        unknown += len(failed) - len(known)
        more = "".join(f"; known: {why}" for why in known)
        print(f"{client.name:42}{len(lines) - len(failed):4} passed {len(failed):4} failed{more}")
    return 1 if unknown else 0


def run(client: StorageClient, endpoint: str, account: str, key: str, root: Path) -> list[str]:
    """Returns what a client printed."""
    print(f"\n{client.name}", flush=True)
    program = prepare(client)
    environment = {
        **os.environ,
        "ACCOUNT": account,
        "KEY": key,
        "AZURE_CONFIG_DIR": str(root / "az"),
        **_styled(client, endpoint, account, key, root),
    }
    work = _CACHE / client.place  # Node looks for packages beside the script's folder
    script = _HERE / client.script
    if script.suffix == ".mjs":
        script = work / script.name
        script.write_text((_HERE / client.script).read_text())
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.Popen([*program, str(script)], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)  # fmt: skip
        assert done.stdout is not None
        lines = []
        for line in done.stdout:
            print(f"  {line}", end="", flush=True)
            lines.append(line.rstrip())
        return lines if done.wait() in (0, 1) and lines else [*lines, f"it ended with {done.returncode}"]


def _styled(client: StorageClient, endpoint: str, account: str, key: str, root: Path) -> Mapping[str, str]:
    if client.style == "path":
        text = f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};FileEndpoint={endpoint};"
        return {"ENDPOINT": endpoint, "STYLE": "path", "CONNECTION": text}
    return {
        "ENDPOINT": f"https://{account}.file.core.windows.net",
        "STYLE": "host",
        "CONNECTION": f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={key};"
        "EndpointSuffix=core.windows.net",
        "HTTPS_PROXY": (root / "proxy").read_text().strip(),
        "REQUESTS_CA_BUNDLE": str(root / "ca.pem"),
        "NODE_EXTRA_CA_CERTS": str(root / "ca.pem"),
    }


def prepare(client: StorageClient) -> list[str]:
    """Returns the program that runs a client's script; makes its environment if the cache has none."""
    folder = _CACHE / client.place
    stamp = folder / f".{'-'.join(client.packages).replace('/', '-')}"
    if client.place == "node":
        if not (folder / "node_modules").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                ["npm", "install", "--silent", "--no-audit", "--no-fund", *client.packages], cwd=folder, check=True
            )
        return ["node"]
    python = str(folder / "bin" / "python")
    if client.packages and not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *client.packages], check=True
        )
        stamp.touch()
    return [python]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
