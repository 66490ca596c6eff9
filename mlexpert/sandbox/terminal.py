"""What a stream of bytes leaves on a terminal, in bounded memory: text first, then the limit.

The screen holds the last lines, the only ones that a program can still change: `\\r`, `\\b`, the cursor and erase
commands of ANSI act on them, so a progress bar is one line however often it was drawn. A line that leaves the screen
is final and goes to a record of the first and the last bytes, which alone counts towards the limit. Colours, titles
and all other commands, control characters and the ones that break or reorder lines are removed; bytes that are not
UTF-8 become U+FFFD.

The screen is `COLUMNS` wide and `ROWS` high, so that a line without end scrolls away too; no newline is put in where
a long line goes on. How the stream was cut into chunks never matters: characters and commands may be split.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

ROWS = 64  # lines that the cursor can reach
COLUMNS = 4096

# What a terminal ignores wherever it comes, also inside a command, and what would break or reorder lines.
_IGNORED = re.compile("[\x00-\x06\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9b\x9d-\x9f\u2028-\u202e\u2066-\u2069]+")
_ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # all but text, tab and newline
_STRING_END = re.compile("[\x07\x1b\x9c\n]")
_COLOUR = r"\x1b\[[0-9;:]{0,32}m"
_SILENT = re.compile(f"(?:{_COLOUR}|[\x07\x9c])+")  # these are many, and have no effect between texts
_TOKEN = re.compile(
    f"(?P<text>[^\b\r\x1b]++(?:{_COLOUR}[^\b\r\x1b]*+)*+)"
    "|(?P<back>\b+)"
    "|(?P<start>\r+)"
    r"|\x1b\[(?P<argument>[0-?]{0,32})[ -/]{0,4}(?P<command>[@-~])?"
    "|\x1b(?P<string>[]PX^_])[^\x07\x1b\x9c\n]*"  # titles, links, pictures: all up to the terminator
    "|\x1b[ -/]{0,4}(?P<escape>[0-~])?"
)


def shown(text: str) -> str:
    """The text as a terminal would leave it; text that was shown before comes back as it is."""
    parts: list[str] = []
    screen = _Screen(parts.append)
    screen.feed(text)
    return "".join(parts) + screen.text()


class Capture:
    """The text that a stream leaves on a terminal: at most `limit` bytes of it, half from its start, half from its end.

    `received` counts the bytes of the stream itself, whatever became of them.
    """

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"a limit of {limit} bytes: it cannot be negative")
        self.received = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._record = _Record(limit)
        self._screen = _Screen(self._record.add)

    def add(self, data: bytes) -> None:
        self.received += len(data)
        self._screen.feed(self._decoder.decode(data))

    def text(self) -> str:
        """The text so far. Where something had to be left out, a line between the halves says how many bytes of it."""
        return self._record.text(self._pending())

    @property
    def truncated(self) -> bool:
        """Whether more than `limit` bytes of text were left on the terminal."""
        return self._record.total + len(self._pending()) > self._record.limit

    def _pending(self) -> bytes:
        """What is not final yet; a character that broke off at the end is replaced as in the middle."""
        broken = self._decoder.getstate()[0].decode("utf-8", "replace")
        return self._screen.text(broken).encode()


class _Record:
    """The first and the last bytes of a text, `limit` in all."""

    def __init__(self, limit: int) -> None:
        self.limit, self.total = limit, 0
        self._head, self._tail = bytearray(), bytearray()

    def add(self, text: str) -> None:
        data = text.encode()
        self.total += len(data)
        room = self.limit // 2 - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # One byte more than is shown: it tells whether the tail begins at the start of a line.
        del self._tail[: max(0, len(self._tail) - (self.limit - self.limit // 2 + 1))]

    def text(self, rest: bytes) -> str:
        """All, or both ends with the line between them, if `rest` follows."""
        whole = bytes(self._head + self._tail) + rest
        total, half = self.total + len(rest), self.limit // 2
        if total <= self.limit:
            return whole.decode()
        head = _without_last_line(whole[:half]).decode("utf-8", "ignore")
        tail = _without_first_line(whole[len(whole) - (self.limit - half + 1) :]).decode("utf-8", "ignore")
        cut = total - len(head.encode()) - len(tail.encode())
        border = "\n" if head and not head.endswith("\n") else ""
        return f"{head}{border}... [{cut} bytes cut] ...\n{tail}"


# A line that was cut is left out, unless it is more than half of what is there.
def _without_last_line(head: bytes) -> bytes:
    border = head.rfind(b"\n") + 1
    return head[:border] if 2 * border >= len(head) else head


def _without_first_line(tail: bytes) -> bytes:
    border = tail.find(b"\n") + 1
    return tail[border:] if 0 < 2 * border <= len(tail) else tail[1:]


class _Row:
    """One line of the screen. Blanks at the end of a line that was drawn over wipe out what was there."""

    __slots__ = ("redrawn", "text")

    def __init__(self) -> None:
        self.text, self.redrawn = "", False

    def shown(self) -> str:
        return self.text.rstrip(" ") if self.redrawn else self.text

    def put(self, column: int, text: str) -> None:
        gap = column - len(self.text)
        if gap >= 0:
            self.text += " " * gap + text
        else:
            self.text = self.text[:column] + text + self.text[column + len(text) :]
            self.redrawn = True

    def erase(self, begin: int, end: int) -> None:
        self.text = self.text[:begin] + " " * (end - begin) + self.text[end:]
        self.redrawn = True


class _Screen:
    """The lines that can still change, and the cursor. What scrolls away is handed to `final`, in order."""

    def __init__(self, final: Callable[[str], None]) -> None:
        self._final = final
        self._rows = [_Row()]
        self._row = self._column = self._top = 0  # of the rows: the cursor's, and the first that it can reach
        self._unfinished = ""  # the start of a command whose end has not come yet
        self._in_string = False

    def text(self, more: str = "") -> str:
        """All lines on the screen, as if `more` had been printed at the cursor."""
        lines = [row.shown() for row in self._rows]
        if more and not self._in_string:
            row = _Row()
            row.text, row.redrawn = self._rows[self._row].text, self._rows[self._row].redrawn
            row.put(self._column, more)
            lines[self._row] = row.shown()
        return "\n".join(lines)

    # ------------------------------------------------------------ reading
    def feed(self, text: str) -> None:
        if not (self._unfinished or self._in_string) and _ACTIVE.search(text) is None:
            self._print(text)
            return
        text = self._unfinished + _IGNORED.sub("", text).replace("\r\n", "\n")
        self._unfinished = ""
        for token in _TOKEN.finditer(text, self._end_of_string(text)):
            match token.lastgroup:
                case "text":
                    self._print(_SILENT.sub("", token[0]))
                case "start":
                    self._column = 0
                case "back":
                    self._column = max(0, self._column - len(token[0]))
                case "command":
                    self._obey(token["command"], token["argument"])
                case "string":
                    self._in_string = token.end() == len(text)
                case "argument" | None if token.end() == len(text):
                    self._unfinished = token[0]

    def _end_of_string(self, text: str) -> int:
        if not self._in_string:
            return 0
        end = _STRING_END.search(text)
        self._in_string = end is None
        return len(text) if end is None else end.start()

    def _obey(self, command: str, argument: str) -> None:
        if command not in "ABCDEFGJK":
            return
        digits = argument.split(";")[0]
        count = int(digits) if digits.isdecimal() else 0
        step = max(1, count)
        match command:
            case "A" | "F":
                self._row = max(self._top, self._row - step)
            case "B" | "E":
                self._row = min(len(self._rows) - 1, self._row + step)
            case "C":
                self._column = min(COLUMNS - 1, self._column + step)
            case "D":
                self._column = max(0, self._column - step)
            case "G":
                self._column = min(COLUMNS, step) - 1
            case "J" | "K":
                self._erase(command, count)
        if command in "EF":
            self._column = 0

    def _erase(self, command: str, which: int) -> None:
        """Of the line: the rest (0), the start (1), all (2). Of the screen only what is below: the rest was read."""
        row = self._rows[self._row]
        length = len(row.text)
        if command == "J" and which == 0:
            del self._rows[self._row + 1 :]
        if which == 0:
            row.erase(min(self._column, length), length)
        elif command == "K" and which in (1, 2):
            row.erase(0, length if which == 2 else min(self._column + 1, length))

    # ------------------------------------------------------------ writing
    def _print(self, text: str) -> None:
        """Text and newlines at the cursor. Of many lines all but the last ones would only run over the screen."""
        if "\n" not in text:
            self._write(text)
            return
        *lines, rest = text.split("\n", len(self._rows) - self._row)
        for line in lines:
            self._write(line)
            self._newline()
        if rest.count("\n") >= ROWS:  # the cursor is in a fresh last row
            begin = len(rest)
            for _ in range(ROWS):
                begin = rest.rindex("\n", 0, begin)
            self._scroll(len(self._rows) - 1)
            self._final(rest[: begin + 1])
            rest = rest[begin + 1 :]
        *lines, last = rest.split("\n")
        for line in lines:
            self._write(line)
            self._newline()
        self._write(last)

    def _write(self, text: str) -> None:
        while text:
            if self._column == COLUMNS:
                self._wrap()
            part, text = text[: COLUMNS - self._column], text[COLUMNS - self._column :]
            self._rows[self._row].put(self._column, part)
            self._column += len(part)

    def _wrap(self) -> None:
        """The full line and all above it are final; the line goes on in an empty row."""
        self._scroll(self._row)
        self._final(self._rows[0].text)
        self._rows[0] = _Row()
        self._column = 0

    def _newline(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._rows):
            self._rows.append(_Row())
            self._top = max(self._top, len(self._rows) - ROWS)
            if len(self._rows) > 2 * ROWS:  # not one by one
                self._scroll(ROWS)

    def _scroll(self, count: int) -> None:
        self._final("".join(row.shown() + "\n" for row in self._rows[:count]))
        del self._rows[:count]
        self._row -= count
        self._top = max(0, self._top - count)
