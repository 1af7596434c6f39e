"""A server process for tests: it answers as its file of orders says, and notes what it was asked.

Run as a script: `openai_server.py FOLDER` writes its port to `FOLDER/port` when it listens. Each
request is a line of `FOLDER/asked`. How it answers is read from `FOLDER/orders`, a JSON object:
`mode` (normal, slow, hang, malformed, echo, garbage, pooling), `fail` (the first so many requests
get `status`), `status`, `after` (Retry-After), `slow` (seconds), `grade`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    folder = Path()
    count = 0
    inside = 0
    most = 0

    def do_POST(self) -> None:
        """Note the request, and answer as ordered."""
        size = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(size))
        cls = type(self)
        with LOCK:
            cls.count += 1
            number = cls.count
            cls.inside += 1
            cls.most = max(cls.most, cls.inside)
            noted = {"path": self.path, "body": body, "most": cls.most}
            noted["key"] = self.headers.get("Authorization", "")
            with open(self.folder / "asked", "a") as handle:
                handle.write(json.dumps(noted) + "\n")
        try:
            self._answer(number, body, json.loads((self.folder / "orders").read_text()))
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            with LOCK:
                cls.inside -= 1

    def _answer(self, number: int, body: dict, orders: dict) -> None:
        mode = orders.get("mode", "normal")
        time.sleep(orders.get("slow", 0))
        if mode == "hang":
            time.sleep(60)
        if number <= orders.get("fail", 0):
            self._send(orders.get("status", 500), b'{"error": "later"}', orders.get("after"))
        elif mode == "garbage":
            self._send(200, b"<html>proxy error</html>")
        elif mode == "pooling":
            text = body["messages"][-1]["content"]
            value = [[float(len(text))]] if text != "odd" else [[0.5, 0.5]]
            self._send(200, json.dumps({"data": [{"index": 0, "data": value}]}).encode())
        else:
            reply = self._said(mode, body, orders.get("grade", 7))
            choice = {"message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
            self._send(200, json.dumps({"choices": [choice]}).encode())

    def _said(self, mode: str, body: dict, grade: object) -> str:
        system, user = (message["content"] for message in body["messages"])
        wanted = json.loads(system[system.rindex("{") :])
        if mode == "malformed":
            return "I would say seven out of ten."
        grades = json.dumps(dict.fromkeys(wanted, grade))
        return f"{user}\nMy grades: {grades}" if mode == "echo" else f"```json\n{grades}\n```"

    def _send(self, status: int, data: bytes, after: object = None) -> None:
        self.send_response(status)
        if after is not None:
            self.send_header("Retry-After", str(after))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (Handler.folder / "port.partial").write_text(str(server.server_address[1]))
    (Handler.folder / "port.partial").rename(Handler.folder / "port")
    server.serve_forever()
