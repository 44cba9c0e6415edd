"""The command lines of container engines, built from one table; nothing is run here.

Sources: the manual pages podman-run(1), podman-exec(1) of podman 4.3; docker's command line reference (version 20.10);
apptainer's user guide (1.3). Apptainer's words have never been run by this project: no package of it could be had.
"""

from __future__ import annotations

import os
import resource
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMES = ("podman", "docker", "apptainer")
"""The engines, in the order in which ``auto`` looks for them."""

# The first process of a container: it sends signals to the ranks' groups as it is told, and ends with its input. When
# whoever holds that input ends in any way, it ends too, and with it the kernel ends everything in the container.
_FIRST = """trap '' TERM INT HUP; echo ready; while read -r s p; do kill -"$s" -"$p" 2>/dev/null; done"""
# A process of the job: it reads its variables from a file, writes its number into another, and becomes the command.
_ENTER = """. "$1" || exit 125; echo $$ >"$2"; [ -x /bin/bash ] && exec /bin/bash -c "$3"; exec /bin/sh -c "$3\""""
LABEL = "batchhvd.node"
"""The label of our containers; its value is the task's folder and the node's number."""


class ContainerEngine:
    """One container engine.

    Args:
        name: one of ``NAMES``.
    """

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise ValueError(f"there is no container engine {name!r}; choose {', '.join(NAMES)}")
        self.name = name

    @property
    def is_there(self) -> bool:
        """Whether its command is in the search path."""
        return shutil.which(self.name) is not None

    @property
    def user(self) -> str:
        """Who processes in a container are, so that what they write on shares belongs to whoever runs the node.

        Podman's root is that user also when podman runs without root; docker's is always the machine's root.
        """
        return "0:0" if self.name == "podman" else f"{os.geteuid()}:{os.getegid()}"

    # -- images --

    def inspect(self, image: str) -> list[str]:
        """Returns what prints the id of a local image and its variables as JSON, and fails if there is none."""
        return [self.name, "image", "inspect", "--format", "{{.Id}} {{json .Config.Env}}", image]

    def pull(self, image: str, folder: str) -> list[str]:
        """Returns what pulls an image from its registry; the credentials lie in ``config.json`` of a folder, if any."""
        if self.name == "docker":
            return ["docker", "--config", folder, "pull", "--quiet", image]
        return ["podman", "pull", "--quiet", "--authfile", os.path.join(folder, "config.json"), image]

    def load(self, archive: str) -> list[str]:
        """Returns what loads the images of an archive."""
        return [self.name, "load", "--quiet", "--input", archive]

    def tag(self, image: str, name: str) -> list[str]:
        """Returns what gives an image another name."""
        return [self.name, "tag", image, name]

    def untag(self, name: str) -> list[str]:
        """Returns what takes a name from an image that has others, or removes an image that nothing uses."""
        return ["podman", "untag", name, name] if self.name == "podman" else ["docker", "rmi", "--no-prune", name]

    def remove_image(self, name: str) -> list[str]:
        """Returns what removes an image, and fails if a container uses it."""
        return [self.name, "rmi", name]

    def images(self, name: str) -> list[str]:
        """Returns what lists the names of all local images of a repository, a line each."""
        return [self.name, "images", "--filter", f"reference={name}", "--format", "{{.Repository}}:{{.Tag}}"]

    # -- containers --

    def run(
        self, name: str, image: str, *, label: str, binds: Sequence[str], shm: str = "", gpus: Sequence[str] = ()
    ) -> list[str]:
        """Returns what starts a container, whose first process reads from standard input what to signal.

        Args:
            name: the container's name.
            image: a local image.
            label: the value of our label.
            binds: directories of the machine that have the same path inside.
            shm: the size of ``/dev/shm``, such as ``2g``; "" for the engine's own choice.
            gpus: the device files of GPUs.

        Raises:
            ValueError: a path cannot be written in a command line of this engine.
        """
        if self.name == "apptainer":
            return self._instance(name, image, binds, gpus)
        words = [self.name, "run", "--rm", "--interactive", "--pull", "never", "--name", name]
        words += ["--label", f"{LABEL}={label}", "--network", "host", "--user", self.user, "--entrypoint", "/bin/sh"]
        words += ["--log-driver", "none", "--security-opt", "label=disable", "--sig-proxy=false"]
        words += ["--stop-signal", "KILL"]  # its first process heeds no other
        words += limits() if self.name == "podman" else []
        words += [f"--volume={path}:{path}" for path in map(_plain, binds)]
        words += ["--shm-size", shm] if shm else []
        words += self._devices(gpus)
        return [*words, image, "-c", _FIRST]

    def _devices(self, gpus: Sequence[str]) -> list[str]:
        if not gpus:
            return []
        if self.name == "docker" and shutil.which("nvidia-container-runtime"):
            return ["--gpus", "all"]
        if self.name == "podman" and any(os.path.exists(f"{place}/cdi/nvidia.yaml") for place in ("/etc", "/var/run")):
            return ["--device", "nvidia.com/gpu=all"]
        more = [path for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools") if os.path.exists(path)]
        return [f"--device={path}" for path in (*gpus, *more)]

    def _instance(self, name: str, image: str, binds: Sequence[str], gpus: Sequence[str]) -> list[str]:
        words = ["apptainer", "instance", "start", "--writable-tmpfs", "--contain", "--cleanenv"]
        words += [f"--bind={path}" for path in map(_plain, binds)]
        return [*words, *(["--nv"] if gpus else []), image, name]

    def execute(self, name: str, directory: str, variables: str, pid: str, command: str) -> list[str]:
        """Returns what runs a command in a container.

        Args:
            name: the container's name.
            directory: the working directory.
            variables: the path of a file of shell with its variables.
            pid: the path of a file that gets its process number inside the container.
            command: a shell command line.
        """
        inner = ["/bin/sh", "-c", _ENTER, "sh", variables, pid, command]
        if self.name == "apptainer":
            return ["apptainer", "exec", "--cleanenv", "--pwd", directory, f"instance://{name}", *inner]
        return [self.name, "exec", "--workdir", directory, "--user", self.user, name, *inner]

    def remove(self, name: str) -> list[str]:
        """Returns what ends and removes a container."""
        if self.name == "apptainer":
            return ["apptainer", "instance", "stop", name]
        return [self.name, "rm", "--force", name]

    def ours(self) -> list[str]:
        """Returns what lists our containers, running or not: a line each with its name and our label's value."""
        form = f'{{{{.Names}}}} {{{{index .Labels "{LABEL}"}}}}'
        if self.name == "docker":
            form = f'{{{{.Names}}}} {{{{.Label "{LABEL}"}}}}'
        return [self.name, "ps", "--all", "--filter", f"label={LABEL}", "--format", form]


def limits() -> list[str]:
    """Returns the resource limits of this process as options of podman, which asks for higher ones, as not all may.

    Podman itself lowers the number of processes to 32768 if it may not raise it.
    """
    files, processes = (resource.getrlimit(number)[1] for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    processes = 32768 if processes == resource.RLIM_INFINITY else min(processes, 32768)
    files = 1 << 20 if files == resource.RLIM_INFINITY else files
    return [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def found() -> str:
    """Returns the first engine whose command is in the search path, or ""."""
    return next((name for name in NAMES if ContainerEngine(name).is_there), "")


def quiet_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for an engine's own commands: those of the node, in English."""
    return {**variables, "LC_ALL": "C"}


def _plain(path: str) -> str:
    if set(path) & set(":,\n"):
        raise ValueError(f"a path with a colon, a comma or a line break cannot be mounted in a container: {path!r}")
    return path
