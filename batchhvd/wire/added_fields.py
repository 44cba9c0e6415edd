"""Teaches azure-mgmt-batchai the field that the local service adds to jobs and logins; unknown ones are dropped."""

from __future__ import annotations

from typing import Any

from azure.mgmt.batchai import models

from batchhvd.wire.facts.additions import FIELD


class ExtendedJob(models.Job):
    """A job as azure-mgmt-batchai reads it, with ``properties.batchhvd`` as it came."""

    _validation = {**models.Job._validation, FIELD: {"readonly": True}}
    _attribute_map = {**models.Job._attribute_map, FIELD: {"key": f"properties.{FIELD}", "type": "object"}}


class ExtendedLogin(models.RemoteLoginInformation):
    """How a node is entered as azure-mgmt-batchai reads it, with ``batchhvd`` as it came."""

    _validation = {**models.RemoteLoginInformation._validation, FIELD: {"readonly": True}}
    _attribute_map = {**models.RemoteLoginInformation._attribute_map, FIELD: {"key": FIELD, "type": "object"}}


def teach(client: Any) -> None:
    """Makes a client of azure-mgmt-batchai read jobs and logins, alone and in lists, with what is added to them."""
    client._deserialize.dependencies["Job"] = ExtendedJob
    client._deserialize.dependencies["RemoteLoginInformation"] = ExtendedLogin
