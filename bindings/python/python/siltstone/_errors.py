"""What can go wrong: one class for each way to react."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Any error of the store. The message says all that is known, on one line."""

    #: The file concerned, if one is.
    file: Optional[str]
    #: The byte offset in that file, if it is known.
    offset: Optional[int]

    def __init__(self, message: str, file: Optional[str] = None, offset: Optional[int] = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset

    def __reduce__(self) -> tuple[type, tuple[str, Optional[str], Optional[int]]]:
        return type(self), (str(self), self.file, self.offset)


class InvalidError(Error, ValueError):
    """The call was wrong (a key over the limit, an unknown option): change the call."""


class OutOfRangeError(Error):
    """The key is not one of the family's, which was split: another family answers for it now."""


class NotFoundError(Error, LookupError):
    """What was named does not exist."""


class ConflictError(Error):
    """A transaction met a newer write: read again and retry, as ``Db.transact`` does."""


class BusyError(Error):
    """Somebody else holds it (the directory's lock): wait, or pick another."""


class CorruptionError(Error):
    """Stored bytes are not what was written: restore a backup, or repair. Nothing was answered from them."""


class IoError(Error, OSError):
    """The file system failed; file and cause are in the message."""


class DiskFullError(IoError):
    """No space left. Reads go on; writes resume by themselves once there is space."""


class PoisonedError(Error):
    """A write or sync of the WAL failed before. Reads go on; reopen the database to write again."""


class ClosedError(Error, ValueError):
    """The database (or what it belongs to) was closed."""


class ReadOnlyError(Error):
    """The database was opened read-only."""


class UnsupportedError(Error):
    """Written by a newer release, or needs a merge operator or filter that was not given to ``open``."""


class ChangesLostError(Error):
    """A stream of changes asked for writes that are not in the WAL any more: read the present and go on from there."""


class CanceledError(Error):
    """Cancelled by its caller."""


class MergeRefusedError(Error):
    """The family's merge operator refused a key's operands. Other keys are not affected."""
