"""The nodes of a job reach each other by ``ssh NAME``: a key of the job's own, and a configuration that finds them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from batchhvd.service.http.exchange import Logins
from batchhvd.service.login import host_key
from batchhvd.service.store import durable
from batchhvd.service.store.cluster import StoredCluster

_log = logging.getLogger("batchhvd.service.login")
FOLDER = "ssh"
PRIVATE_KEY, PUBLIC_KEY = f"{FOLDER}/id_ed25519", f"{FOLDER}/id_ed25519.pub"
CONFIG = f"{FOLDER}/config"
_FIRST = 4  # the first node of a cluster of Batch AI was 10.0.0.4, and scripts of that time count on it
_ALIAS = "batchhvd-node"

# What stands for ssh, scp and sftp in the jobs: OpenSSH takes its home from the user database, not from $HOME.
_PROGRAM = """\
#!/bin/sh
# Lets ssh, scp and sftp of a job find the job's nodes by their names; everything else is as without it.
name=${0##*/}
own=${0%/*}
real=
IFS=:
for folder in $PATH; do
    if [ -z "$real" ] && [ "$folder" != "$own" ] && [ -x "$folder/$name" ]; then real=$folder/$name; fi
done
unset IFS
if [ -z "$real" ]; then
    echo "$name is not installed here; on Debian and Ubuntu: apt-get install openssh-client" >&2
    exit 127
fi
if [ -n "$BATCHHVD_SSH_CONFIG" ] && [ -r "$BATCHHVD_SSH_CONFIG" ]; then
    exec "$real" -F "$BATCHHVD_SSH_CONFIG" "$@"
fi
exec "$real" "$@"
"""


def programs(root: Path) -> Path:
    """Returns the folder of the programs that stand for ssh, scp and sftp in jobs; makes it if it is not there.

    The folder stays untouched once it is there: prepared layers depend on the times of the folders in PATH.
    """
    path = host_key.folder(root) / "bin"
    path.mkdir(exist_ok=True)
    for name in ("ssh", "scp", "sftp"):
        file = path / name
        if not file.exists() or file.read_text(encoding="ascii") != _PROGRAM:
            durable.replace(file, _PROGRAM, 0o755)
    return path


@frozen
class Peers:
    """The nodes of a job, for each other.

    Attributes:
        user: the administrator of the cluster.
        nodes: their names, in the job's order.
        ports: the port of each.
        host_key: the public key of the cluster.
    """

    user: str
    nodes: Sequence[str]
    ports: Mapping[str, int]
    host_key: str


def peers(root: Path, cluster: StoredCluster, nodes: Sequence[str], ports: Mapping[str, int]) -> Peers:
    """Returns the nodes of a job, as its ``ssh`` sees them."""
    user = cluster.properties["userAccountSettings"]["adminUserName"]
    return Peers(user, nodes, ports, host_key.public_key(root, cluster.id, cluster.record.number))


@frozen
class Equipper:
    """Gives the nodes of a job what they need to reach each other.

    Attributes:
        root: the service's folder.
        ports: returns the ports of a cluster's nodes.
    """

    root: Path
    ports: Logins

    def __call__(self, folder: Path, cluster: StoredCluster, nodes: Sequence[str]) -> None:
        """Writes it into a job's folder; if it cannot, the log says so, and the job runs without."""
        ports = self.ports(cluster.id, nodes)
        if not ports or "userAccountSettings" not in cluster.properties:  # an old record: nobody is let in
            return
        try:
            equip(folder, peers(self.root, cluster, nodes, ports))
        except (OSError, ImportError, ValueError) as error:
            _log.warning("the nodes of the job in %s cannot reach each other by ssh: %s", folder, error)


def equip(folder: Path, found: Peers) -> None:
    """Writes key, configuration and known hosts into a task's folder, readable by its owner only.

    Args:
        folder: the task's folder.
        found: the nodes.
    """
    (folder / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / PRIVATE_KEY).exists():
        private, public = _new_key()
        _write(folder / PUBLIC_KEY, public)
        _write(folder / PRIVATE_KEY, private)
    _write(folder / FOLDER / "known_hosts", f"{_ALIAS} {found.host_key}\n")
    _write(folder / CONFIG, config(folder, found))


def config(folder: Path, found: Peers) -> str:
    """Returns the configuration of ``ssh`` for a job."""
    names = [(node, f"10.0.0.{_FIRST + index}") for index, node in enumerate(found.nodes)]
    lines = ["# The nodes of this job; written by batchhvd."]
    for (node, address), number in zip(names, map(found.ports.get, found.nodes), strict=True):
        if number is not None:
            lines += [f"Host {node} {address}", "    HostName 127.0.0.1", f"    Port {number}"]
    lines += [
        "Host " + " ".join(f"{node} {address}" for node, address in names),
        f"    HostKeyAlias {_ALIAS}",
        f"    User {found.user}",
        f"    IdentityFile {_quoted(folder / PRIVATE_KEY)}",
        "    IdentitiesOnly yes",
        "    IdentityAgent none",
        f"    UserKnownHostsFile {_quoted(folder / FOLDER / 'known_hosts')}",
        "    GlobalKnownHostsFile /dev/null",
        "    UpdateHostKeys no",
        "    StrictHostKeyChecking yes",
        "    BatchMode yes",
        "Host *",
        "    Include ~/.ssh/config",
        "    Include /etc/ssh/ssh_config",
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def _new_key() -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # takes 40 ms to load

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption())
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    return private.decode(), public.decode() + "\n"


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
