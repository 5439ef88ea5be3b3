"""A webhook when a run ends: a task that sends it, as the hook of other tasks, retried like any task."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen

from mainspring import Mainspring


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        print("told:", self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


app = Mainspring("memory://")


@app.task(retries=5, timeout=10)
def tell(run: Any) -> None:
    body = json.dumps({"name": run.name, "success": run.success}).encode()
    urlopen(Request(f"http://127.0.0.1:{receiver.server_port}/", body)).close()


@app.task(hook=tell)
def convert(file: str) -> str:
    return f"{file}.pdf"


with app, HTTPServer(("127.0.0.1", 0), Receiver) as receiver:
    threading.Thread(target=receiver.handle_request).start()
    app.start(work=True)
    print(convert.enqueue("report").result(timeout=10))
    app.wait([run.id for run in app.find()], timeout=10)
