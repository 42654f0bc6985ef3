"""The capability of the example's workers: calls and jobs of every kind that a proxy has to carry.

The SDK reads annotations as they stand: none of them may be put off by `from __future__ import annotations`.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from intersect_sdk import (
    IntersectBaseCapabilityImplementation,
    IntersectCapabilityError,
    IntersectDataHandler,
    IntersectDirectMessageParams,
    IntersectEventDefinition,
    intersect_message,
    intersect_status,
)
from pydantic import BaseModel, Field

from fault import Faults, InjectedError
from telling import tell

BINARY = "application/octet-stream"
Answer = TypeVar("Answer")
Capability = TypeVar("Capability", bound=IntersectBaseCapabilityImplementation)


class Pair(BaseModel):
    """Two numbers."""

    a: float
    b: float


class Job(BaseModel):
    """A job that streams results."""

    job_id: str
    total: int = Field(default=3, ge=1)
    rate: float = Field(default=20.0, gt=0, description="results a second")


class LongJob(BaseModel):
    """A job that is accepted at once and works for some time."""

    job_id: str
    seconds: float = Field(default=1.0, ge=0)


class Acceptance(BaseModel):
    """The early answer to a job."""

    job_id: str
    accepted: bool


class JobResult(BaseModel):
    """One result of a job."""

    job_id: str
    index: int
    total: int
    status: Literal["running", "done"]
    worker: str


class WorkerStatus(BaseModel):
    """What a worker says of itself."""

    worker: str
    calls: int
    open_jobs: int


class Compute(IntersectBaseCapabilityImplementation):
    """Arithmetic, bytes, faults, a counter and jobs."""

    intersect_sdk_capability_name = "Compute"
    intersect_sdk_events: ClassVar[dict[str, IntersectEventDefinition]] = {
        "job_result": IntersectEventDefinition(event_type=JobResult),
        "announced": IntersectEventDefinition(event_type=str),
        "announced_bytes": IntersectEventDefinition(event_type=bytes, content_type=BINARY),
    }

    def __init__(self, worker: str, report_to: str | None = None) -> None:
        """`report_to` takes results as requests for its operation `job_result`, instead of events."""
        super().__init__()
        self._worker = worker
        self._report_to = report_to
        self._faults = Faults(worker)
        self._lock = threading.Lock()
        self._calls = 0
        self._count = 0
        self._open_jobs = 0

    # Plain operations

    @intersect_message()
    def add(self, pair: Pair) -> float:
        """The sum of two numbers."""
        return self._run("add", lambda: pair.a + pair.b)

    @intersect_message()
    def greet(self, name: Annotated[str, Field(default="world")]) -> str:
        """A greeting, to everybody if nobody is named."""
        return self._run("greet", lambda: f"hello {name}")

    @intersect_message(request_content_type=BINARY, response_content_type=BINARY)
    def reverse_bytes(self, data: bytes) -> bytes:
        """Bytes in, the same backwards out."""
        return self._run("reverse_bytes", lambda: data[::-1])

    @intersect_message()
    def length(self, text: str) -> int:
        """How long a text is, which may have come over the store."""
        return self._run("length", lambda: len(text))

    @intersect_message()
    def refuse(self, reason: str) -> str:
        """Raises the SDK's own exception, whose text reaches the caller."""

        def raise_it() -> str:
            raise IntersectCapabilityError(reason)

        return self._run("refuse", raise_it)

    @intersect_message()
    def crash(self, reason: str) -> str:
        """Raises another exception, whose text stays here."""

        def raise_it() -> str:
            raise RuntimeError(reason)

        return self._run("crash", raise_it)

    @intersect_message()
    def sleep(self, seconds: float) -> float:
        """Answers after some time. On MQTT the worker is deaf meanwhile: the SDK calls it on its network thread."""
        return self._run("sleep", lambda: _slept(seconds))

    @intersect_message(ignore_keys={"guarded"})
    def guarded(self, value: int) -> int:
        """Not available where the worker was started with `--forbid guarded`."""
        return self._run("guarded", lambda: value)

    @intersect_message()
    def increment(self, key: Annotated[str, Field(default="")]) -> int:
        """Counts, and writes a line for it that outlives the worker, so that executions can be counted."""

        def count() -> int:
            with self._lock:
                self._count += 1
                _append(f"{key} {self._worker} {self._count}\n")
                return self._count

        return self._run("increment", count, key=key)

    @intersect_message()
    def ready(self) -> bool:
        """A status operation that obeys faults, for health checks."""
        return self._run("ready", lambda: True)

    @intersect_message()
    def announce(self, text: str) -> str:
        """Emits the text as two events before it answers: as JSON and as bytes."""

        def emit() -> str:
            self.intersect_sdk_emit_event("announced", text)
            self.intersect_sdk_emit_event("announced_bytes", text.encode())
            return text

        return self._run("announce", emit)

    # Jobs

    @intersect_message()
    def run_compute_job(self, job: Job) -> Acceptance:
        """Accepts a job at once; its results follow."""
        return self._run("run_compute_job", lambda: self._accept(job.job_id, lambda: self._stream(job)))

    @intersect_message()
    def run_long_job(self, job: LongJob) -> Acceptance:
        """Accepts a job at once, works for some time in a thread, then sends one result."""
        return self._run("run_long_job", lambda: self._accept(job.job_id, lambda: self._work(job)))

    @intersect_status()
    def status(self) -> WorkerStatus:
        """Is sent with lifecycle messages as well, therefore it meets no faults."""
        return WorkerStatus(worker=self._worker, calls=self._calls, open_jobs=self._open_jobs)

    # Inside

    def _run(self, operation: str, work: Callable[[], Answer], **fields: Any) -> Answer:
        with self._lock:
            self._calls += 1
            call = self._calls
        tell("call", operation=operation, call=call, **fields)
        try:
            self._meet_fault(operation)
            answer = work()
        except Exception as error:
            tell("failed", operation=operation, call=call, error=type(error).__name__)
            raise
        tell("answered", operation=operation, call=call)
        return answer

    def _meet_fault(self, operation: str) -> None:
        fault = self._faults.now()
        if fault not in ("hang", "error"):
            return
        tell("fault", fault=fault, operation=operation)
        if fault == "error":
            raise InjectedError("the worker was told to fail")
        self._faults.hang()
        tell("fault_over", fault=fault, operation=operation)

    def _accept(self, job_id: str, work: Callable[[], None]) -> Acceptance:
        def run() -> None:
            with self._open_job():
                work()

        threading.Thread(target=run, name=f"job {job_id}", daemon=True).start()
        return Acceptance(job_id=job_id, accepted=True)

    @contextmanager
    def _open_job(self) -> Iterator[None]:
        with self._lock:
            self._open_jobs += 1
        try:
            yield
        finally:
            with self._lock:
                self._open_jobs -= 1

    def _stream(self, job: Job) -> None:
        for index in range(job.total):
            time.sleep(1.0 / job.rate)
            self._stall(job, index)
            status: Literal["running", "done"] = "done" if index + 1 == job.total else "running"
            self._send(JobResult(job_id=job.job_id, index=index, total=job.total, status=status, worker=self._worker))

    def _stall(self, job: Job, index: int) -> None:
        after = self._faults.stall_after()
        if after is not None and index >= after:
            tell("fault", fault="stall", job_id=job.job_id, index=index)
            self._faults.hang("stall")
            tell("fault_over", fault="stall", job_id=job.job_id, index=index)

    def _work(self, job: LongJob) -> None:
        time.sleep(job.seconds)
        self._send(JobResult(job_id=job.job_id, index=0, total=1, status="done", worker=self._worker))

    def _send(self, result: JobResult) -> None:
        tell("result", **result.model_dump(), by="request" if self._report_to else "event")
        if self._report_to is None:
            self.intersect_sdk_emit_event("job_result", result)
            return
        request = IntersectDirectMessageParams(
            destination=self._report_to,
            operation=f"{self.intersect_sdk_capability_name}.job_result",
            payload=result.model_dump(),
        )
        self.intersect_sdk_call_service(request, self._reported)

    def _reported(self, source: str, operation: str, has_error: bool, payload: Any) -> None:
        """What became of a result that was sent as a request."""
        tell("reported", source=source, operation=operation, has_error=has_error, payload=payload)


class StoringCompute(Compute):
    """Arithmetic, bytes, faults, a counter and jobs; and an answer that goes over the store."""

    @intersect_message(response_data_transfer_handler=IntersectDataHandler.MINIO)
    def report(self, size: int) -> str:
        """A text of this many characters."""
        return self._run("report", lambda: "r" * size)


def named(capability: type[Capability], name: str) -> type[Capability]:
    """The capability under another name. The SDK wants it on the class."""
    fields = {"intersect_sdk_capability_name": name, "__doc__": capability.__doc__}
    return type(capability.__name__, (capability,), fields)


def _slept(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def _append(line: str) -> None:
    """Adds a line to the file of executions, if there is one, and comes back when the disk has it."""
    path = os.environ.get("MAINSTAY_COUNTER_FILE")
    if path is None:
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)
