"""The types of answers about files and batches, in OpenAI's form. Pure."""

from typing import Literal

from typing_extensions import TypedDict

from llama_srb.batch.records import Purpose, Status
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
