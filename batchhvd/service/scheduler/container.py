"""From a job's ``containerSettings`` to its task's container, or to what says why it has none. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from batchhvd.service.store.documents import JobProperties
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.containers import Containers


def image_of(properties: JobProperties) -> str:
    """Returns the image that a job names, or ""."""
    settings = properties.get("containerSettings")
    return str(settings["imageSourceRegistry"]["image"]) if settings else ""


def _server(url: str) -> str:
    """Returns the host of a registry, as it stands at the head of an image's name; "" for Docker Hub's."""
    host = re.sub(r"^https?://", "", url.strip()).rstrip("/")
    return "" if re.fullmatch(r"((index|registry-1|hub)\.)?docker\.(io|com)(/v[12])?", host) else host


def document(job: StoredJob, containers: Containers) -> Mapping[str, str] | None:
    """Returns the ``container`` of a job's task, or None if it runs on the node itself.

    Args:
        job: the job.
        containers: what the service does with images.
    """
    image = image_of(job.properties)
    if not image or not containers.engine:
        return None
    settings = job.properties["containerSettings"]
    source = settings["imageSourceRegistry"]
    return {
        "engine": containers.engine,
        "image": image,
        "server": _server(source.get("serverUrl", "")),
        "username": source.get("credentials", {}).get("username", ""),
        "password": job.registry_password,
        "shm": settings.get("shmSize", ""),
    }


def notice(properties: JobProperties, containers: Containers) -> str:
    """Returns the sentence that says that a job's image is not run, or "" if it has none or it is run."""
    image = image_of(properties)
    return containers.notice(image) if image and not containers.engine else ""
