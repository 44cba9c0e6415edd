"""Types for the parts of a job's and a cluster's document that the service reads; the description has all parts.

A stored document was checked against the description, so required fields are present.
"""

from __future__ import annotations

from typing import TypedDict

from batchhvd.service.store.records import Document


class Detail(TypedDict):
    """One named fact of an error."""

    name: str
    value: str


class ErrorDocument(TypedDict):
    """An error of a job or of a cluster."""

    code: str
    message: str
    details: list[Detail]


class ResourceId(TypedDict):
    """A reference to another resource."""

    id: str


class Credentials(TypedDict, total=False):
    """What opens a storage account."""

    accountKey: str
    accountKeySecretReference: Document


class AzureFileShare(TypedDict, total=False):
    """A share of a storage account, as it is mounted."""

    accountName: str
    azureFileUrl: str
    credentials: Credentials
    relativeMountPath: str


class AzureBlobFileSystem(TypedDict, total=False):
    """A container of a storage account, as it is mounted."""

    accountName: str
    containerName: str
    credentials: Credentials
    relativeMountPath: str
    mountOptions: str


class FileServerMount(TypedDict, total=False):
    """A file server, as it is mounted."""

    fileServer: ResourceId
    sourceDirectory: str
    relativeMountPath: str


class UnmanagedFileSystem(TypedDict, total=False):
    """What a command mounts."""

    mountCommand: str
    relativeMountPath: str


class MountVolumes(TypedDict, total=False):
    """All that a job or a cluster mounts."""

    azureFileShares: list[AzureFileShare]
    azureBlobFileSystems: list[AzureBlobFileSystem]
    fileServers: list[FileServerMount]
    unmanagedFileSystems: list[UnmanagedFileSystem]


class Variable(TypedDict, total=False):
    """An environment variable, or one with a secret value."""

    name: str
    value: str
    valueSecretReference: Document


class InputEntry(TypedDict):
    """A directory that a job reads from."""

    id: str
    path: str


class OutputEntry(TypedDict, total=False):
    """A directory that a job writes to."""

    id: str
    pathPrefix: str
    pathSuffix: str


class ToolkitSettings(TypedDict, total=False):
    """The settings of a toolkit; each has some of these."""

    processCount: int
    commandLine: str
    commandLineArgs: str
    pythonScriptFilePath: str
    pythonInterpreterPath: str


class Command(TypedDict):
    """A command line."""

    commandLine: str


class Constraints(TypedDict, total=False):
    """How long a job may run."""

    maxWallClockTime: str


class ExecutionInfo(TypedDict, total=False):
    """When a job ran and how it ended."""

    startTime: str
    endTime: str
    exitCode: int
    errors: list[ErrorDocument]


class TaskProperties(TypedDict, total=False):
    """What a job and a setup task have in common."""

    stdOutErrPathPrefix: str
    environmentVariables: list[Variable]
    secrets: list[Variable]


class JobProperties(TaskProperties, total=False):
    """A job's ``properties``."""

    cluster: ResourceId
    nodeCount: int
    schedulingPriority: str
    horovodSettings: ToolkitSettings
    customMpiSettings: ToolkitSettings
    customToolkitSettings: ToolkitSettings
    pyTorchSettings: ToolkitSettings
    tensorFlowSettings: ToolkitSettings
    chainerSettings: ToolkitSettings
    cntkSettings: ToolkitSettings
    caffeSettings: ToolkitSettings
    caffe2Settings: ToolkitSettings
    jobPreparation: Command
    containerSettings: Document
    mountVolumes: MountVolumes
    inputDirectories: list[InputEntry]
    outputDirectories: list[OutputEntry]
    constraints: Constraints
    jobOutputDirectoryPathSegment: str
    creationTime: str
    provisioningState: str
    executionState: str
    executionStateTransitionTime: str
    executionInfo: ExecutionInfo


class SetupTask(TaskProperties, total=False):
    """The command that prepares each node of a cluster."""

    commandLine: str
    stdOutErrPathSuffix: str


class NodeSetup(TypedDict, total=False):
    """How a cluster's nodes are set up."""

    setupTask: SetupTask
    mountVolumes: MountVolumes


class ManualScaleSettings(TypedDict, total=False):
    """A fixed number of nodes."""

    targetNodeCount: int
    nodeDeallocationOption: str


class AutoScaleSettings(TypedDict, total=False):
    """A number of nodes that follows the queue."""

    minimumNodeCount: int
    maximumNodeCount: int
    initialNodeCount: int


class ScaleSettings(TypedDict, total=False):
    """One of two ways to scale a cluster."""

    manual: ManualScaleSettings
    autoScale: AutoScaleSettings


class ClusterProperties(TypedDict, total=False):
    """A cluster's ``properties``."""

    vmSize: str
    userAccountSettings: dict[str, str]
    virtualMachineConfiguration: Document
    vmPriority: str
    scaleSettings: ScaleSettings
    nodeSetup: NodeSetup
    provisioningState: str
    allocationState: str
    allocationStateTransitionTime: str
    currentNodeCount: int
    nodeStateCounts: dict[str, int]
    errors: list[ErrorDocument]


def error(code: str, message: str, **details: str) -> ErrorDocument:
    """Returns an error with its details in the order in which they are given."""
    return {"code": code, "message": message, "details": [{"name": name, "value": details[name]} for name in details]}
