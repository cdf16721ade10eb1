"""The errors of a client.

ClientError
├── UnknownField       the server has no field of this name (also a TypeError)
├── RequestRefused     the server refused the request; param names the field
├── ServerError        the server or its engine failed, or it did not answer as llama-srb does
└── ConnectionFailed   no connection, or it was lost
"""

from __future__ import annotations


class ClientError(Exception):
    """The base class of a client's errors; code is the server's code of the error."""

    def __init__(self, message: str, *, code: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class UnknownField(ClientError, TypeError):
    """The server has no such field; the message names the nearest one."""


class RequestRefused(ClientError):
    """The server refused the request; the message has the field, its value and the bound."""


class ServerError(ClientError):
    """The server failed, or its answer is not one of llama-srb."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection broke during the answer."""
