"""How a local service is to be started, and whether the one that runs was started so."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from attrs import frozen

from batchhvd.errors import ConflictError, SpecError
from batchhvd.wire.configuration import DEFAULTS, PREPARE, Configuration
from batchhvd.wire.facts.containers import CHOICES

_HARMLESS = ("port", "idle")  # another value changes no job


@frozen
class ServiceOptions:
    """How a local service is to be started.

    Attributes:
        given: what somebody has set, by name.
        sources: where, for messages.
    """

    given: Mapping[str, object]
    sources: Mapping[str, str]

    @classmethod
    def of(
        cls,
        settings: Configuration,
        *,
        engine: str | None,
        engine_options: Mapping[str, str | int | float] | None,
        prepare: str | None,
        allow_directory: Sequence[str | os.PathLike[str]] | None,
        port: int | None,
        idle: float | None,
        containers: str | None = None,
    ) -> ServiceOptions:
        """Returns the options: arguments, and where those are None, the settings.

        Raises:
            SpecError: an argument is not what it must be.
        """
        if prepare is not None and prepare not in PREPARE:
            raise SpecError(f"prepare={prepare!r} is not known", remedy=f"give one of {', '.join(PREPARE)}")
        if containers is not None and containers not in CHOICES:
            raise SpecError(f"containers={containers!r} is not known", remedy=f"give one of {', '.join(CHOICES)}")
        places = None if allow_directory is None else [os.path.abspath(os.fspath(one)) for one in allow_directory]
        arguments: dict[str, object] = {"engine": engine, "engine_options": engine_options, "prepare": prepare}
        arguments |= {"allow_directory": places, "containers": containers, "port": port, "idle": idle}
        given = {name: settings.given(name) if value is None else value for name, value in arguments.items()}
        if engine is not None and engine_options is None and engine != settings.given("engine"):
            given["engine_options"] = None  # those of the settings are another engine's
        sources = {
            name: settings.settings[name].source
            for name, value in arguments.items()
            if value is None and name in settings.settings
        }
        return cls({name: value for name, value in given.items() if value is not None}, sources)

    def words(self) -> list[str]:
        """Returns the options of ``python -m batchhvd.service``."""
        found = []
        for name in ("engine", "prepare", "port", "idle"):
            found += [f"--{name}", str(self.given.get(name, DEFAULTS[name]))]
        found += [f"--option={name}={value}" for name, value in _table(self.given.get("engine_options")).items()]
        found += [f"--containers={self.given['containers']}"] if "containers" in self.given else []
        return found + [f"--allow-directory={path}" for path in _texts(self.given.get("allow_directory"))]

    def check(self, root: str, about: Mapping[str, object]) -> None:
        """Compares with the service that runs.

        Args:
            root: its folder.
            about: what it says of itself.

        Raises:
            ConflictError: it was started in another way, so that jobs would run in another way.
        """
        options = about.get("options")
        running = {"engine": about.get("engine"), **(options if isinstance(options, dict) else {})}
        for name, value in self.given.items():
            if name not in running or _same(value, running[name]):
                continue
            source = f" (from {self.sources[name]})" if name in self.sources else ""
            what = f"the local service in {root} runs with {name} {running[name]!r}, not with {value!r}{source}"
            if name in _HARMLESS:
                if not source:
                    warnings.warn(f"{what}; the running service keeps its own", stacklevel=4)
                continue
            raise ConflictError(f"{what}. End it first with Session.stop_service(), or use another root").told(
                f"{what}. End it first with `batchhvd serve --stop`, or use another root"
            )


def _table(value: object) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items()} if isinstance(value, Mapping) else {}


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _same(wanted: object, running: object) -> bool:
    if isinstance(wanted, Mapping):
        return _table(wanted) == _table(running)
    if isinstance(wanted, list):
        return sorted(_texts(wanted)) == sorted(_texts(running))
    return wanted == running
