"""The one error for files that cannot be used."""

from __future__ import annotations

_LONGEST, _END = 600, 200


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message is one printable line that names the file and what is wrong.

    Names and values quoted in the message may come from the broken file itself, so whatever could span lines
    or drive a terminal is shown escaped, and an overlong message is cut in its middle.
    """

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
        super().__init__(line if len(line) <= _LONGEST else line[: _LONGEST - _END - 1] + "…" + line[-_END:])
