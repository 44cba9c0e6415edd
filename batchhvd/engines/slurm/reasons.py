"""Why a job waits in Slurm's queue: one row for each of Slurm's words, with its meaning and what to do about it.

Source: the page job_reason_codes.html of Slurm's manual, squeue's manual page, and the words of Slurm 22.05 itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

_WAIT = "wait: Slurm starts it by itself"
_ADMIN = "ask the cluster's administrator"
_RELEASE = "release it: scontrol release JOB"
_LESS = "terminate it, and submit it with less of it"
_OTHERS = "wait until others have ended, or choose another account or qos"
_LIMITS = "see the limits: sacctmgr show assoc, sacctmgr show qos"
_OVER = "see why in Slurm's log of the job (scontrol show job JOB), terminate it and submit it again"


@frozen
class PendingReason:
    """What one of Slurm's words means.

    Attributes:
        meaning: why the job waits, as a part of a sentence.
        step: what to do about it, where JOB stands for the job's number.
    """

    meaning: str
    step: str = _WAIT


_ROWS: Mapping[str, PendingReason] = {
    "AccountNotAllowed": PendingReason(
        "its account may not use the partition", "terminate it, and set the option account or partition"
    ),
    "AccountingPolicy": PendingReason("a limit of the account or the QOS", _LIMITS),
    "AssociationJobLimit": PendingReason("the account runs as many jobs as it may", _OTHERS),
    "AssociationResourceLimit": PendingReason("the account uses as much as it may", _OTHERS),
    "AssociationTimeLimit": PendingReason("the account has used up its time", f"{_ADMIN}, or choose another account"),
    "BadConstraints": PendingReason(
        "no node has what its options ask for", "terminate it, and correct constraint, gres, mem or nodelist"
    ),
    "BeginTime": PendingReason(
        "its time to start has not come: its option begin, or Slurm's pause before a job starts again"
    ),
    "BlockFreeAction": PendingReason("blocks of the machine are being freed"),
    "BlockMaxError": PendingReason("a block of the machine has failed too often", _ADMIN),
    "BurstBufferOperation": PendingReason("an operation of its burst buffer failed", _ADMIN),
    "BurstBufferResources": PendingReason("the burst buffer has no room"),
    "BurstBufferStageIn": PendingReason("its data is copied into the burst buffer"),
    "Cleaning": PendingReason("what is left of its earlier attempt is still being cleaned up"),
    "Constraints": PendingReason("no node with what its options ask for is free"),
    "DeadLine": PendingReason("it cannot end before its deadline any more", "terminate it"),
    "Dependency": PendingReason("another job has to end first"),
    "DependencyNeverSatisfied": PendingReason(
        "the job that it depends on has ended in another way", "terminate it, and set the option dependency again"
    ),
    "FedJobLock": PendingReason("the clusters of the federation agree on who starts it"),
    "FrontEndDown": PendingReason("no front end node is up", _ADMIN),
    "InactiveLimit": PendingReason("it was inactive for too long", _OVER),
    "InvalidAccount": PendingReason("its account does not exist", "terminate it, and set the option account"),
    "InvalidQOS": PendingReason("its QOS does not exist", "terminate it, and set the option qos"),
    "JobArrayTaskLimit": PendingReason("as many elements of its array run as may run at once"),
    "JobHeldAdmin": PendingReason("an administrator holds it", _ADMIN),
    "JobHeldUser": PendingReason("it is held", _RELEASE),
    "JobHoldMaxRequeue": PendingReason("it has been started again too often, and is held", _RELEASE),
    "JobLaunchFailure": PendingReason("a node could not start it", f"{_ADMIN} to look at the node, then {_RELEASE}"),
    "Licenses": PendingReason("all licences that it asks for are in use"),
    "MaxMemPerLimit": PendingReason("it asks for more memory than a node or a processor may give", _LESS),
    "NodeDown": PendingReason("a node that it needs is down", f"{_WAIT} when the node is back, or {_ADMIN}"),
    "NonZeroExitCode": PendingReason("it ended with an error", _OVER),
    "None": PendingReason("Slurm has not looked at it yet"),
    "OutOfMemory": PendingReason("it used more memory than it was given", _OVER),
    "PartitionConfig": PendingReason(
        "the partition does not give such nodes", "terminate it, and ask for fewer nodes or another partition"
    ),
    "PartitionDown": PendingReason("the partition starts no jobs now", f"wait until it is up, or {_ADMIN}"),
    "PartitionInactive": PendingReason("the partition takes no jobs now", f"wait until it is up, or {_ADMIN}"),
    "PartitionNodeLimit": PendingReason(
        "the partition does not give so many nodes to one job, or some of them are down or drained",
        "terminate it, and ask for fewer nodes or another partition",
    ),
    "PartitionTimeLimit": PendingReason(
        "its time limit is longer than the partition's",
        "terminate it, and set a shorter max_seconds or the option time",
    ),
    "PowerNotAvail": PendingReason("there is not enough electric power for it now"),
    "PowerReserved": PendingReason("the electric power that it needs is reserved"),
    "Priority": PendingReason("jobs of higher priority come first"),
    "Prolog": PendingReason("the nodes' prolog is running"),
    "QOSJobLimit": PendingReason("as many jobs as the QOS allows are running", _OTHERS),
    "QOSNotAllowed": PendingReason(
        "its account or partition may not use its QOS", "terminate it, and set the option qos"
    ),
    "QOSResourceLimit": PendingReason("the QOS is used as much as it may be", _OTHERS),
    "QOSTimeLimit": PendingReason("the time of the QOS is used up", f"{_ADMIN}, or choose another qos"),
    "QOSUsageThreshold": PendingReason(
        "the account has used more of the machine than its QOS asks of it", f"wait until that has aged, or {_ADMIN}"
    ),
    "ReqNodeNotAvail": PendingReason(
        "nodes that it needs are in use, down, drained or reserved", f"{_WAIT} when they are back, or {_ADMIN}"
    ),
    "Reservation": PendingReason("its reservation has not begun, or is in use"),
    "ReservationDeleted": PendingReason(
        "its reservation does not exist any more", "terminate it, and set the option reservation"
    ),
    "Resources": PendingReason("not enough nodes are free"),
    "SchedDefer": PendingReason("Slurm starts nothing at once here"),
    "SystemFailure": PendingReason("Slurm, its file system or its network failed", _ADMIN),
    "TimeLimit": PendingReason("it used up its time limit", _OVER),
}
_THING = {
    "BB": "the burst buffer",
    "Billing": "billing units",
    "Cpu": "processors",
    "CPU": "processors",
    "Energy": "energy",
    "GRES": "GPUs or other devices",
    "Jobs": "running jobs",
    "License": "licences",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "SubmitJob": "jobs that run or wait",
    "SubmitJobs": "jobs that run or wait",
    "Unknown": "a resource that Slurm does not name",
    "Wall": "the time limits of running jobs",
    "WallDuration": "the time limit",
}
_THINGS = "|".join(sorted(_THING, key=len, reverse=True))
_OWNER = {"Assoc": "the account", "QOS": "the QOS", "": "the account"}
# The words for limits are made of whose limit it is, of what, and for whom.
_GROUP = re.compile(f"(Assoc|QOS)Grp({_THINGS})(Minutes|RunMinutes)?(?:Limit)?")
_MOST = re.compile(f"(Assoc|QOS|)Max({_THINGS})(Minutes|RunMinutes)?(PerJob|PerNode|PerUser|PerAccount)?(?:Limit)?")
_LEAST = re.compile(f"QOSMin({_THINGS})(?:NotSatisfied)?")
_MORE = {
    "the time limit": "a longer time limit",
    "the burst buffer": "more of the burst buffer",
    _THING["Unknown"]: f"more of {_THING['Unknown']}",
}
_COUNTED = frozenset({"Jobs", "SubmitJob", "SubmitJobs"})


def reason_of(word: str) -> PendingReason | None:
    """Returns what a word of squeue means; None for a word that Slurm's manual does not have.

    Args:
        word: the reason, which may be followed by details: ``"ReqNodeNotAvail, UnavailableNodes:node[1-2]"``.
    """
    first = re.split(r"[,(]", word, maxsplit=1)[0].strip()
    return _ROWS.get(first) or _group(first) or _most(first) or _least(first) or _sentence(word)


def _group(word: str) -> PendingReason | None:
    found = _GROUP.fullmatch(word)
    if not found:
        return None
    what = {"Minutes": "minutes of ", "RunMinutes": "minutes of running jobs on "}.get(found[3] or "", "")
    return PendingReason(
        f"all users of {_OWNER[found[1]]} together have reached its limit on {what}{_THING[found[2]]}", _OTHERS
    )


def _most(word: str) -> PendingReason | None:
    """Reads a limit on one job, one node, one user or one account."""
    found = _MOST.fullmatch(word)
    if not found:
        return None
    owner, thing, per = _OWNER[found[1]], _THING[found[2]], found[4] or ""
    what = f"{'minutes of ' if found[3] else ''}{thing}"
    if per == "PerAccount":
        return PendingReason(f"its account has reached the limit of the QOS on {what}", _OTHERS)
    if per == "PerUser" or found[2] in _COUNTED:
        return PendingReason(f"you have reached the limit of {owner} on {what}", "wait until jobs of yours have ended")
    more = _MORE.get(thing, f"more {what}")
    return PendingReason(f"it asks for {more} than {owner} allows {'a node' if per == 'PerNode' else 'a job'}", _LESS)


def _least(word: str) -> PendingReason | None:
    found = _LEAST.fullmatch(word)
    if not found:
        return None
    return PendingReason(
        f"the QOS requires a job to ask for more: {_THING[found[1]]}", "terminate it, and ask for more, or set qos"
    )


def _sentence(word: str) -> PendingReason | None:
    """Reads what Slurm says in words of its own instead of a code."""
    if "launch failed" in word:
        return _ROWS["JobLaunchFailure"]
    return PendingReason("it is held", _RELEASE) if "held" in word else None
