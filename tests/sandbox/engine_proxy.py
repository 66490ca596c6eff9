"""A socket in front of a container engine, to be opened to other users, or to vanish in the middle of everything."""

import contextlib
import os
import socket
import threading
from pathlib import Path


class Proxy:
    def __init__(self, path: Path, engine: str) -> None:
        self.host, self._engine, self._open = f"unix://{path}", engine.removeprefix("unix://"), True
        self._pairs: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        os.chmod(path, 0o777)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def vanish(self) -> None:
        self._open = False
        for one in (self._listener, *self._pairs):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while self._open:
            with contextlib.suppress(OSError):
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._engine)
                self._pairs += [near, far]
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(a, b), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
