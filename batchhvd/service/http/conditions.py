"""Conditional requests: an entity's tag is heeded where it is read, and every other condition is refused by name.

A condition that were dropped in silence would let a client overwrite what it meant to protect.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from email.utils import format_datetime
from functools import lru_cache

from batchhvd.errors import BadRequestError, ServiceError
from batchhvd.service.http.exchange import Answer
from batchhvd.wire.facts.times import read_moment

_MATCH, _NONE_MATCH = "if-match", "if-none-match"
_ALL = (_MATCH, _NONE_MATCH, "if-modified-since", "if-unmodified-since", "if-range")
_TIMES = ("provisioningStateTransitionTime", "allocationStateTransitionTime", "executionStateTransitionTime")


def tagged(document: Mapping[str, object] | bytes) -> Answer:
    """Returns the answer that shows one resource, with its tag and the time of its last change of state."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Answer(200, text, _tags(text))


@lru_cache(maxsize=256)  # clients ask for the same few documents again and again until they change
def _tags(text: bytes) -> Mapping[str, str]:
    properties = json.loads(text)["properties"]
    changed = max(properties[name] for name in _TIMES if name in properties)
    tag = hashlib.blake2b(text, digest_size=8).hexdigest().upper()[:15]
    return {"ETag": f'"0x{tag}"', "Last-Modified": format_datetime(read_moment(changed), usegmt=True)}


def check(method: str, headers: Mapping[str, str]) -> None:
    """Refuses the conditions that cannot be heeded.

    Raises:
        BadRequestError: 400, it names the header.
    """
    for name in _ALL:
        if name in headers and (method not in ("GET", "HEAD") or name not in (_MATCH, _NONE_MATCH)):
            raise _refusal(name, method)


def judge(answer: Answer, headers: Mapping[str, str]) -> Answer:
    """Returns the answer to a request that reads, under the request's conditions.

    Raises:
        BadRequestError: 400, there is a condition, and what is read has no tag.
        ServiceError: 412, ``If-Match`` names another tag.
    """
    given = [name for name in (_MATCH, _NONE_MATCH) if name in headers]
    if not given or answer.status != 200:
        return answer
    if "ETag" not in answer.headers:
        raise _refusal(given[0], "this GET")
    tag = answer.headers["ETag"]
    if _MATCH in headers and not _names(headers[_MATCH], tag):
        raise ServiceError(f"The resource's ETag is {tag}.", status=412, code="PreconditionFailed", target="If-Match")
    if _NONE_MATCH in headers and _names(headers[_NONE_MATCH], tag):
        return Answer(304, None, answer.headers)
    return answer


def _names(value: str, tag: str) -> bool:
    return value.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in value.split(",")]


def _refusal(name: str, method: str) -> BadRequestError:
    shown = name.title()
    text = (
        f"The header {shown} is not supported for {method}; If-Match and If-None-Match are where one resource is read."
    )
    return BadRequestError(text, code="ConditionalHeaderNotSupported", target=shown)
