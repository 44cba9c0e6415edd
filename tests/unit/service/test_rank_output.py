"""What is told of a rank's output: not what frameworks say when they start, and a lack of memory by its name."""

from __future__ import annotations

import pytest

from batchhvd.advice.explain import JobFacts, of_job
from batchhvd.engines.base import Status, StopReason, TaskState
from batchhvd.service.scheduler import outcome
from batchhvd.service.status.verdict import of_job as shown
from batchhvd.service.store.documents import ErrorDocument, ExecutionInfo
from batchhvd.wire.facts.output import memory_error, without_notices
from batchhvd.wire.reasons import Reason

STARTING = """\
2026-11-28 16:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see
2026-11-28 16:00:00.223456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT \
factory: Attempting to register factory for plugin cuFFT when one has already been registered
2026-11-28 16:00:00.323456: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find \
TensorRT
2026-11-28 16:00:00.423456: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: \
INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)
2026-11-28 16:00:00.523456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate flags.
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795883058.802585    8532 port.cc:153] oneDNN custom operations are on.
E0000 00:00:1795883058.802960    8532 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to register
W0000 00:00:1795883058.902960    8532 computation_placer.cc:177] computation placer already registered.
I0000 00:00:1795883058.902960    8532 cudart_stub.cc:31] Could not find cuda drivers on your machine
[1,0]<stderr>:I0000 00:00:1795883058.902960    8532 port.cc:153] oneDNN custom operations are on.
WARNING:absl:You are saving your model as an HDF5 file via `model.save()`.
INFO:tensorflow:Graph was finalized.
  [[{{node HorovodAllreduce}}]]""".splitlines()
#: What looks like it and is the cause.
REAL = [
    "2026-11-28 16:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:1] failed to allocate 15.00G",
    "2026-11-28 16:00:00.1: W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed: RESOURCE_EXHAUSTED: OOM",
    "F0000 00:00:1795883058.802960    8532 core.cc:1] Check failed: cuInit",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "WARNING: my own warning",
    "I think it failed",
    "ImportError: libcudart.so.12: cannot open shared object file",
]


def failed(tail: list[str], exit_code: int = 1) -> ErrorDocument:
    status = Status(
        state=TaskState.FAILED,
        reason=StopReason.RANK,
        rank=0,
        exit_code=exit_code,
        error="rank 0 ended with exit code 1",
        tail=tuple(tail),
    )
    return outcome.error(status, attempt=1)


def details(error: ErrorDocument) -> dict[str, str]:
    return {entry["name"]: str(entry["value"]) for entry in error["details"]}


@pytest.mark.parametrize("line", STARTING)
def test_notices_of_a_start_are_left_out(line: str) -> None:
    assert without_notices([line]) == []


@pytest.mark.parametrize("line", REAL)
def test_what_may_be_the_cause_stays(line: str) -> None:
    assert without_notices([line]) == [line]


def test_the_last_line_of_a_job_is_not_a_notice() -> None:
    error = failed(["ValueError: x", *STARTING])
    assert error["message"].endswith("; last line: ValueError: x.")
    assert details(error)["Tail"] == "ValueError: x"
    silent = failed(STARTING)
    assert "last line" not in silent["message"] and not details(silent).get("Tail")


def test_explain_quotes_no_notice_that_a_service_or_a_log_has() -> None:
    reason = Reason(
        "RankFailed", "Rank 0 ended with exit code 1.", {"Rank": "0", "Tail": "\n".join(["boom", *STARTING])}
    )
    facts = JobFacts("id", "j", "failed", 1, [reason], 1, None, None, None, "", None, lambda name: "")
    assert of_job(facts).evidence == ("rank 0", "boom")
    log = JobFacts(
        "id", "j", "failed", 1, [Reason("RankFailed", "x", {})], 1, None, None, None, "", None,
        lambda name: "\n".join([*STARTING, "bang"]),
    )  # fmt: skip
    assert of_job(log).evidence == ("bang",)


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "MemoryError: Unable to allocate 8.00 GiB",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape (10**12,)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried",
    ],
)
def test_a_memory_error_is_told_as_such(line: str) -> None:
    error = failed(["Traceback (most recent call last):", line, *STARTING[-2:]])
    assert error["code"] == "OutOfMemory"
    assert "it ran out of memory: lower" in error["message"] and error["message"].endswith(f"last line: {line}.")


def test_a_kill_for_memory_is_told_as_one() -> None:
    status = Status(
        state=TaskState.FAILED, reason=StopReason.MEMORY, rank=0, exit_code=137, error="rank 0 was killed", tail=("a",)
    )
    assert "ran out of memory and was killed" in outcome.error(status, attempt=1)["message"]


@pytest.mark.parametrize("line", ["MyMemoryErrors: 3", "caught MemoryError, going on", "ValueError: MemoryError"])
def test_other_lines_are_not_a_lack_of_memory(line: str) -> None:
    assert memory_error([line]) == ""
    assert memory_error(["MemoryError", "a", "b", "c"]) == ""


def test_a_success_after_a_retry_tells_of_the_first_try() -> None:
    first = failed(["boom"], exit_code=7)
    reason = Reason(first["code"], first["message"], details(first))
    facts = JobFacts("id", "j", "succeeded", 1, [reason], 0, None, None, None, "", None, lambda name: "")
    verdict = of_job(facts)
    assert verdict.cause == "succeeded" and "in attempt 2" in verdict.why
    assert verdict.evidence == (f"before that: {reason}",)
    info: ExecutionInfo = {"exitCode": 0, "errors": [first]}
    page = shown({"executionState": "succeeded", "executionInfo": info})
    assert (page["cause"], page["why"], page["next"]) == ("succeeded", "It succeeded.", "")
    assert page["evidence"] == [f"before that: {first['message']}"]
