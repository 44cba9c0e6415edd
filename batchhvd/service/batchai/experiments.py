"""Experiments of Batch AI, which hold jobs."""

from __future__ import annotations

from batchhvd.service.batchai.kinds import alive, find, fresh, name_of, open_parent
from batchhvd.service.http.conditions import tagged
from batchhvd.service.http.exchange import Answer, Ask, Here


def create(here: Here, ask: Ask) -> Answer:
    """Creates an experiment, or returns the one that exists."""
    parent, name = open_parent(here, ask, "experiments"), name_of(ask, "experiments")
    old = find(here, parent, "experiments", name)
    if old is not None:
        return tagged(alive(old).document)
    document = fresh(here, parent, "experiments", name, {})
    return tagged(here.store.put(document["id"], "experiments", parent.id, document).document)
