"""A local stand-in of Kaggle's API: the few calls that are used, with what can go wrong in them.

The official client speaks to it by its own code: only the address of the service is another.
"""

import contextlib
import io
import json
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVICE = "/v1/competitions.CompetitionApiService/"
NAME = "toy-houses"


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return packed.getvalue()


def table(rows=40):
    return "id,rooms,price\n" + "".join(f"{row},{row % 5},{100 + 7 * (row % 5)}\n" for row in range(rows))


def facts(name, **changes):
    return {
        "id": 7, "ref": f"https://www.kaggle.com/competitions/{name}", "title": name.replace("-", " ").title(),
        "deadline": "2020-01-31T23:59:00Z", "category": "Playground", "teamCount": 900, "userHasEntered": True,
        "evaluationMetric": "Root Mean Squared Logarithmic Error", "licenseName": "CC0: Public Domain",
    } | changes  # fmt: skip


@dataclass
class Kaggle:
    """What the stand-in has, and what it saw."""

    competitions: list = field(default_factory=lambda: [facts(NAME)])
    files: dict = field(default_factory=lambda: {"train.csv": table(), "test.csv": "id,rooms\n1,2\n"})
    listed: list | None = None  # (name, bytes), if not those of `files`
    pages: dict = field(default_factory=lambda: {"Description": "<p>Some <b>houses</b>.</p><ul><li>cheap</li></ul>"})
    board: dict = field(default_factory=lambda: {
        f"{NAME}-publicleaderboard-2024-05-06T07_08_09.csv":
            "Rank,TeamId,TeamName,LastSubmissionDate,Score,SubmissionCount\n"
            "1,11,Ada,2020-01-01,0.1,3\n2,12,Ben,2020-01-02,0.25,1\n3,13,Cy,2020-01-02,,1\n"})  # fmt: skip
    refuse: dict = field(default_factory=dict)  # call -> (status, message)
    break_off: int = 0  # downloads that end in the middle
    garbage: int = 0  # downloads that are not a zip
    flipped: int = 0  # downloads with a wrong byte in the first file
    stamp: str = '"one"'
    token: str = "KGAT_good"
    seen: list = field(default_factory=list)  # (method, path, headers, body)
    address: str = ""

    def calls(self, name):
        return [body for _, path, _, body in self.seen if path.endswith(name)]


def _reply(kaggle, call, body):
    if call == "ListCompetitions":
        found = [c for c in kaggle.competitions if body.get("search", "") in c["ref"]]
        start = int(body.get("pageToken") or 0)
        more = {"nextPageToken": str(start + 2)} if start + 2 < len(found) else {}
        return {"competitions": found[start : start + 2], **more}
    if call.endswith("/IntrospectToken"):
        return {"active": body["token"] == kaggle.token, "username": "ada"}
    if call == "GetCompetition":
        return next((c for c in kaggle.competitions if c["ref"].endswith("/" + body["competitionName"])), None)
    if call == "ListDataFiles":
        listed = kaggle.listed if kaggle.listed is not None else [(n, len(c)) for n, c in kaggle.files.items()]
        return {"files": [{"name": name, "totalBytes": size} for name, size in listed]}
    if call == "ListCompetitionPages":
        return {"pages": [{"name": name, "content": content} for name, content in kaggle.pages.items()]}
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kaggle: Kaggle

    def log_message(self, *arguments):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        self.kaggle.seen.append(("POST", self.path, dict(self.headers), body))
        call = self.path.removeprefix(SERVICE)
        if call in self.kaggle.refuse:
            status, message = self.kaggle.refuse[call]
            return self._json(status, {"code": status, "message": message})
        if call in ("DownloadDataFiles", "DownloadLeaderboard"):
            self.send_response(302)
            self.send_header("Location", f"{self.kaggle.address}/storage/{call}/{NAME}.zip?X-Signature=signed123")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        reply = _reply(self.kaggle, call, body)
        return self._json(200, reply) if reply is not None else self._json(404, {"code": 404, "message": "Not found"})

    def do_GET(self):
        self.kaggle.seen.append(("GET", self.path, dict(self.headers), {}))
        is_data = "DownloadDataFiles" in self.path
        content = zipped(self.kaggle.files if is_data else self.kaggle.board)
        if is_data and self.kaggle.garbage:
            self.kaggle.garbage -= 1
            content = b"PK\x03\x04" + bytes(len(content) - 4)
        if is_data and self.kaggle.flipped:
            self.kaggle.flipped -= 1
            content = content[:50] + bytes([content[50] ^ 0xFF]) + content[51:]
        wanted = self.headers.get("Range")
        is_current = self.headers.get("If-Range") in (None, self.kaggle.stamp)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and is_current else 0
        self.send_response(206 if start else 200)
        told = {
            "Accept-Ranges": "bytes", "ETag": self.kaggle.stamp, "Content-Type": "application/zip",
            "Last-Modified": "Mon, 06 May 2024 07:08:09 GMT", "Content-Length": str(len(content) - start),
        }  # fmt: skip
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if is_data and self.kaggle.break_off:
            self.kaggle.break_off -= 1
            self.wfile.write(content[start : start + (len(content) - start) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content[start:])

    def _json(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def running():
    """A `Kaggle` that is being served, and that may be changed meanwhile."""
    kaggle = Kaggle()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kaggle": kaggle}))
    kaggle.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield kaggle
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
