"""Which function acts for each operation of Batch AI."""

from __future__ import annotations

from functools import partial

from batchhvd.service.batchai import (
    clusters,
    experiments,
    file_servers,
    jobs,
    kinds,
    output_files,
    provider,
    workspaces,
)
from batchhvd.service.description.published import Description
from batchhvd.service.http.exchange import Handler, Reading


def handlers(description: Description) -> dict[str, Handler]:
    """Returns what acts for each operation of the description, by the operation's id."""
    return {
        "Operations_List": partial(provider.list_operations, description),
        "Usages_List": Reading(provider.list_usages),
        "Workspaces_List": workspaces.list_all,
        "Workspaces_ListByResourceGroup": partial(kinds.list_children, "workspaces"),
        "Workspaces_Create": workspaces.create,
        "Workspaces_Update": workspaces.update,
        "Workspaces_Delete": partial(kinds.delete, "workspaces"),
        "Workspaces_Get": partial(kinds.get, "workspaces"),
        "Experiments_ListByWorkspace": partial(kinds.list_children, "experiments"),
        "Experiments_Create": experiments.create,
        "Experiments_Delete": partial(kinds.delete, "experiments"),
        "Experiments_Get": partial(kinds.get, "experiments"),
        "Jobs_ListByExperiment": partial(kinds.list_children, "jobs"),
        "Jobs_Create": jobs.create,
        "Jobs_Delete": partial(kinds.delete, "jobs"),
        "Jobs_Get": partial(kinds.get, "jobs"),
        "Jobs_ListOutputFiles": Reading(output_files.list_files),
        "Jobs_ListRemoteLoginInformation": jobs.list_logins,
        "Jobs_Terminate": jobs.terminate,
        "FileServers_Create": file_servers.create,
        "FileServers_Delete": file_servers.delete,
        "FileServers_Get": partial(kinds.get, "fileServers"),
        "FileServers_ListByWorkspace": partial(kinds.list_children, "fileServers"),
        "Clusters_Create": clusters.create,
        "Clusters_Update": clusters.update,
        "Clusters_Delete": partial(kinds.delete, "clusters"),
        "Clusters_Get": partial(kinds.get, "clusters"),
        "Clusters_ListByWorkspace": partial(kinds.list_children, "clusters"),
        "Clusters_ListRemoteLoginInformation": clusters.list_logins,
    }
