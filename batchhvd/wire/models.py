"""The documents of the wire, and what the Azure packages make of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.times import read_moment

__all__ = ["Document", "HttpAnswer", "PipelineAnswer", "moment", "wire"]


class HttpAnswer(Protocol):
    """The part of an HTTP response that is read here."""

    headers: Mapping[str, str]


class PipelineAnswer(Protocol):
    """What the Azure packages give to a ``raw_response_hook``."""

    http_response: HttpAnswer


def wire(model: Any) -> Body:
    """Returns the wire's document of a model, whichever generation of the Azure packages it comes from."""
    document: Body
    if hasattr(model, "serialize"):  # msrest
        document = model.serialize(keep_readonly=True)
    elif hasattr(model, "as_dict"):  # generated from TypeSpec
        document = model.as_dict()
    else:
        document = dict(model)
    return document


def moment(text: object) -> datetime | None:
    """Returns the wire's time (ISO 8601) with its zone; None for none."""
    if not text:
        return None
    return read_moment(str(text))
