"""What callers are told of files and batches, in OpenAI's form: types of answers, and their makers. Pure."""

from collections.abc import Sequence
from typing import Literal

from typing_extensions import TypedDict

from llama_srb.batch.records import Batch, Purpose, Status, StoredFile
from llama_srb.dialects.common.response_types import Count


class FileEntry(TypedDict):
    """A file. Times are in seconds since 1970."""

    id: str
    object: Literal["file"]
    bytes: Count
    created_at: Count
    expires_at: Count
    filename: str
    purpose: Purpose
    status: Literal["processed"]


class FileList(TypedDict):
    """has_more: there are others after last_id, which is then the `after` of the next page."""

    object: Literal["list"]
    data: list[FileEntry]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(TypedDict):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class BatchFault(TypedDict):
    """line: of the input, from 1."""

    code: str
    message: str
    line: Count | None
    param: str | None


class BatchFaults(TypedDict):
    object: Literal["list"]
    data: list[BatchFault]


class RequestCounts(TypedDict):
    total: Count
    completed: Count
    failed: Count


class BatchEntry(TypedDict):
    """A batch. Times are in seconds since 1970. errors: why it has failed."""

    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchFaults | None
    input_file_id: str
    completion_window: str
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: Count
    in_progress_at: Count | None
    expires_at: Count
    finalizing_at: Count | None
    completed_at: Count | None
    failed_at: Count | None
    expired_at: Count | None
    cancelling_at: Count | None
    cancelled_at: Count | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchList(TypedDict):
    """The newest first. has_more: there are others after last_id."""

    object: Literal["list"]
    data: list[BatchEntry]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Ends(TypedDict):
    first_id: str | None
    last_id: str | None


def ends_of(ids: Sequence[str]) -> Ends:
    """The ids that a page begins and ends with."""
    return {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}


def file_entry(file: StoredFile) -> FileEntry:
    """A file."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def batch_entry(batch: Batch) -> BatchEntry:
    """A batch as it is now."""
    faults: list[BatchFault] = [
        {"code": one.code, "message": one.message, "line": one.line, "param": one.param}
        for one in batch.errors
    ]
    at = batch.times.get
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": faults} if faults else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at,
        "in_progress_at": at("in_progress"),
        "expires_at": batch.expires_at,
        "finalizing_at": at("finalizing"),
        "completed_at": at("completed"),
        "failed_at": at("failed"),
        "expired_at": at("expired"),
        "cancelling_at": at("cancelling"),
        "cancelled_at": at("cancelled"),
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "metadata": None if batch.metadata is None else dict(batch.metadata),
    }
