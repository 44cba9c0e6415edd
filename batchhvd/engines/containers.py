"""What a service does with the container images that jobs name: the option ``--containers``."""

from __future__ import annotations

from batchhvd.errors import EngineError, EngineMissingError
from batchhvd.node.container import engine as engines
from batchhvd.node.container import reaper

_INSTALL = {"podman": "sudo apt-get install podman", "docker": "sudo apt-get install docker.io"}


def choose(option: str) -> tuple[str, str]:
    """Returns the engine of a service that was started with an option, or "" and why it has none.

    Args:
        option: ``auto``, ``off``, or an engine's name.

    Raises:
        EngineError: there is no such choice.
        EngineMissingError: the engine is named, and it is not installed or does not run.
    """
    if option == "off":
        return "", "the service runs no images: --containers off"
    if option not in ("auto", *engines.NAMES):
        raise EngineError(f"--containers: {option!r} is none of auto, {', '.join(engines.NAMES)}, off", engine=option)
    names = engines.NAMES if option == "auto" else (option,)
    reasons = []
    for name in names:
        problem = problem_of(name)
        if not problem:
            return name, ""
        reasons.append(problem)
    if option != "auto":
        fix = f"; install it with {_INSTALL[option]}" if option in _INSTALL else ""
        raise EngineMissingError(f"--containers {option}: {reasons[0]}{fix}", engine=option, command=option)
    return "", "; ".join(reasons)


def problem_of(name: str) -> str:
    """Returns why a container engine cannot be used on this machine, or "" if it can; asks it, which may take 0.3 s."""
    if not engines.ContainerEngine(name).is_there:
        return f"{name} is not installed"
    code, told = reaper.ask([name, "version"])  # docker's fails if its daemon does not answer
    last = told.strip().splitlines()[-1:] or ["it said nothing"]
    return f"{name} does not run: {last[0]}" if code else ""


def reap(engine: str, root: str) -> list[str]:
    """Removes the containers that killed nodes of a service have left, and returns their names.

    Args:
        engine: the engine's name, or "".
        root: the service's folder.
    """
    if engine in ("", "apptainer"):
        return []
    return reaper.reap(engines.ContainerEngine(engine), f"{root}/")
