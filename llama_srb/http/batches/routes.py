"""The paths of files and batches, as rows of the table of routes."""

from __future__ import annotations

from llama_srb.dialects.openai import Error
from llama_srb.http.batches.handlers import BatchRoutes
from llama_srb.http.route import FAILED, FILE, FORM, Answer, Route, json_of
from llama_srb.serving.batches.entries import BatchEntry, BatchList, DeletedFile, FileEntry, FileList
from llama_srb.serving.keys.scopes import BATCH

NONE = {
    501: json_of("The server keeps no files: --files-dir.", Error),
    503: json_of("Its files cannot be read or written now, for the reason in the message.", Error),
}
LISTING = {400: json_of("A parameter is wrong; the message has value and bound.", Error), **FAILED, **NONE}
NO_FILE = {404: json_of("The key has no file of this id.", Error), **FAILED, **NONE}
NO_BATCH = {404: json_of("The key has no batch of this id.", Error), **FAILED, **NONE}
WRONG = {400: json_of("The body is wrong; the message has field, value and bound.", Error)}
BUSY = {503: json_of("The server has no room or no slot for it now, starts or stops.", Error)}

# fmt: off
BATCHES: tuple[Route, ...] = (
    Route("POST", "/v1/files", BATCH, BatchRoutes.create_file,
        "Stores a file for a batch: a form with the parts `file` and `purpose` (batch), and `expires_after`.",
        {
            200: json_of("It is stored.", FileEntry),
            **WRONG, **FAILED, **NONE,
            408: json_of("A MiB of the body took longer than --body-timeout.", Error),
            413: json_of("The file is larger than --max-file.", Error),
            **BUSY,
        }, files=(FORM,)),
    Route("GET", "/v1/files", BATCH, BatchRoutes.list_files,
        "The files of the key: its own, and the outputs of its batches.",
        {200: json_of("A page of the list.", FileList), **LISTING}, works=True,
        queries=("limit", "after", "order", "purpose")),
    Route("GET", "/v1/files/{file_id}", BATCH, BatchRoutes.get_file,
        "A file of the key, without its content.",
        {200: json_of("The file.", FileEntry), **NO_FILE}, works=True),
    Route("GET", "/v1/files/{file_id}/content", BATCH, BatchRoutes.file_content,
        "The content of a file of the key.",
        {200: Answer("The content.", {FILE: bytes}), **NO_FILE}, works=True),
    Route("DELETE", "/v1/files/{file_id}", BATCH, BatchRoutes.delete_file,
        "Deletes a file of the key.",
        {
            200: json_of("It is deleted.", DeletedFile),
            409: json_of("It is the input of a batch that is not over.", Error),
            **NO_FILE,
        }),
    Route("POST", "/v1/batches", BATCH, BatchRoutes.create_batch,
        "Runs each line of a file as a request of the key, when interactive requests leave room.",
        {
            200: json_of("It is being validated.", BatchEntry),
            **WRONG, **NO_FILE,
            413: json_of("The body is larger than --max-body.", Error),
            429: json_of("The key has too many batches that are not over; see Retry-After.", Error),
            **BUSY,
        }, request="BatchInput"),
    Route("GET", "/v1/batches", BATCH, BatchRoutes.list_batches,
        "The batches of the key, the newest first.",
        {200: json_of("A page of the list.", BatchList), **LISTING}, works=True, queries=("limit", "after")),
    Route("GET", "/v1/batches/{batch_id}", BATCH, BatchRoutes.get_batch,
        "A batch of the key, with the counts of this moment.",
        {200: json_of("The batch.", BatchEntry), **NO_BATCH}, works=True),
    Route("POST", "/v1/batches/{batch_id}/cancel", BATCH, BatchRoutes.cancel_batch,
        "Cancels a batch; the answers so far stay in its output.",
        {
            200: json_of("It is cancelling.", BatchEntry),
            409: json_of("It is over.", Error),
            **NO_BATCH, **BUSY,
        }),
)
# fmt: on
