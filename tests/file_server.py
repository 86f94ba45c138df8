"""Files over HTTP, redirections and servers that say nothing, for tests of what is fetched."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class FileServer:
    """Sends ``files``: bytes by path; a text is where it redirects to, None an answer that never
    comes, "" none at all, an int another status; ``HEAD /x`` goes before ``/x``. ``asked`` lists
    methods and paths."""

    def __init__(
        self,
        files: Mapping[str, bytes | str | int | None],
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self.files, self.asked = dict(files), list[str]()
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(f"{self.command} {self.path}")
                path = self.path.partition("?")[0]
                response = outer.files.get(f"{self.command} {path}", outer.files.get(path, 404))
                if response is None:
                    outer._over.wait()
                    return
                if response == "":
                    self.close_connection = True
                    return
                if isinstance(response, bytes):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(response)))
                else:
                    self.send_response(307 if isinstance(response, str) else response)
                    self.send_header("Location", str(response))
                self.end_headers()
                if isinstance(response, bytes) and self.command == "GET":
                    self.wfile.write(response)

            do_HEAD = do_GET

            def log_message(self, *_words: object) -> None:
                pass

        return Handler
