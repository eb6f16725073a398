"""A simulated browser of a student, for the load test and the test of the hub.

Every request goes to the public address of the hub, with the cookies and the XSRF token that a
browser would send.
"""

import json
import re
import time
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import quote

import requests
import websocket
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from nbformat.v4 import output_from_msg

# Types of messages that are shown below a cell.
SHOWN = ("stream", "display_data", "execute_result", "error")
# Headers that a browser sends for a page, and for a request from the page's script.
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
CODE = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


class RefusedError(Exception):
    """A server rejected a request; the message is what the student sees."""


class Browser:
    """A student's browser.

    Args:
        hub: URL of the hub, without a trailing slash.
        name: Name of the account.
    """

    def __init__(self, hub: str, name: str) -> None:
        self.hub, self.name = hub, name
        self.http = requests.Session()
        self.own = f"/user/{name}/"

    def open(self, path: str, **form: str) -> requests.Response:
        """Open a page, or submit a form, and follow redirects.

        Raises:
            RefusedError: If the server does not show the page.
        """
        method = "POST" if form else "GET"
        response = self.http.request(method, self.hub + path, data=form, headers=PAGE, timeout=120)
        if not response.ok:
            raise RefusedError(f"{path}: status {response.status_code}")
        return response

    def log_in(self, password: str) -> None:
        """Submit the form of the login page.

        Raises:
            RefusedError: If the hub rejects the password.
        """
        form = self.open("/hub/login").text
        token = re.search(r'name="_xsrf" value="([^"]+)"', form)[1]
        self.open("/hub/login?next=/hub/home", username=self.name, password=password, _xsrf=token)

    def start_server(self, seconds: float) -> None:
        """Start the student's server, wait until it is ready, and open JupyterLab.

        Raises:
            RefusedError: If the server does not start.
        """
        self.open("/hub/spawn")
        progress = self.http.get(
            f"{self.hub}/hub/api/users/{self.name}/server/progress",
            params={"_xsrf": self._token("/hub/")},
            headers=CODE,
            stream=True,
            timeout=seconds,
        )
        for line in progress.iter_lines(decode_unicode=True):
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
            if event.get("failed"):
                raise RefusedError(event["message"])
            if event.get("ready"):
                break
        self.open(f"{self.own}lab")

    def ask(self, method: str, path: str, /, **body: Any) -> Any:
        """Send a request to the student's server, as the script of a page would.

        Args:
            method: GET, PUT or POST.
            path: Path relative to the URL of the server.
            body: Sent as JSON.

        Raises:
            RefusedError: If the server rejects the request.
        """
        headers = {**CODE, "X-XSRFToken": self._token(self.own)}
        address = self.hub + self.own + path
        response = self.http.request(
            method, address, json=body or None, headers=headers, timeout=120
        )
        if not response.ok:
            raise RefusedError(f"{path}: status {response.status_code}, {response.text[:200]}")
        return response.json()

    def save(self, path: str, notebook: dict[str, Any]) -> None:
        """Save a notebook, overwriting the file."""
        about = {"type": "notebook", "format": "json", "content": notebook}
        self.ask("PUT", f"api/contents/{quote(path)}", **about)

    def file(self, path: str) -> bytes:
        """Download a file."""
        return self.open(f"{self.own}files/{quote(path)}").content

    def _token(self, path: str) -> str:
        cookies = self.http.cookies
        return next(c.value for c in cookies if (c.name, c.path) == ("_xsrf", path))

    def cookies(self, path: str) -> str:
        """Return the value of the Cookie header for a path."""
        request = requests.Request("GET", self.hub + path).prepare()
        return requests.cookies.get_cookie_header(self.http.cookies, request)


class Kernel:
    """The kernel of a notebook, connected through a websocket.

    Args:
        browser: The student's browser; its server must be running.
        path: Path of the notebook.
    """

    def __init__(self, browser: Browser, path: str) -> None:
        self.browser, self.session = browser, Session()
        about = {"path": path, "name": path.rpartition("/")[2], "type": "notebook"}
        session = browser.ask("POST", "api/sessions", **about, kernel={"name": "python3"})
        self.id = session["kernel"]["id"]
        self.connect()

    def connect(self) -> None:
        """Open or reopen the websocket."""
        path = f"{self.browser.own}api/kernels/{self.id}/channels"
        self.socket = websocket.create_connection(
            f"ws{self.browser.hub.removeprefix('http')}{path}?session_id={self.session.session}",
            cookie=self.browser.cookies(path),
            origin=self.browser.hub,
            header=["Sec-Fetch-Mode: websocket", "Sec-Fetch-Site: same-origin"],
        )
        self.messages: Queue[dict[str, Any] | Exception] = Queue()
        Thread(target=self._listen, args=(self.socket, self.messages), daemon=True).start()

    @staticmethod
    def _listen(socket: websocket.WebSocket, messages: Queue) -> None:
        """Keep receiving messages; the server closes a connection that does not answer pings."""
        try:
            while text := socket.recv():
                messages.put(json.loads(text))
            raise websocket.WebSocketConnectionClosedException("closed by the server")
        except (websocket.WebSocketException, OSError) as error:
            messages.put(error)

    def send(self, kind: str, **content: Any) -> str:
        """Send a message, and return its id."""
        message = self.session.msg(kind, content) | {"channel": "shell", "buffers": []}
        self.socket.send(json.dumps(message, default=json_default))
        return message["header"]["msg_id"]

    def ready(self, seconds: float) -> None:
        """Wait until the kernel answers."""
        self.answer(self.send("kernel_info_request"), seconds)

    def begin(self, source: str) -> str:
        """Send a cell for execution, and return the id of the message."""
        return self.send("execute_request", code=source, silent=False, store_history=True,
                         user_expressions={}, allow_stdin=False, stop_on_error=False)  # fmt: skip

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell, and return its outputs in notebook format."""
        messages = self.answer(self.begin(source), 300)
        return [dict(output_from_msg(m)) for m in messages if m["header"]["msg_type"] in SHOWN]

    def answer(self, id: str, seconds: float) -> list[dict[str, Any]]:
        """Collect the responses to a message until the kernel has replied and is idle.

        Raises:
            TimeoutError: If this takes longer than `seconds`.
            websocket.WebSocketException: If the connection is lost.
        """
        last, messages, replied, idle = time.monotonic() + seconds, [], False, False
        while not (replied and idle):
            try:
                message = self.messages.get(timeout=max(last - time.monotonic(), 0.01))
            except Empty:
                raise TimeoutError(f"the kernel did not answer within {seconds} s") from None
            if isinstance(message, Exception):
                raise message
            if message["parent_header"].get("msg_id") == id:
                messages.append(message)
                replied |= message["channel"] == "shell"
                idle |= message["content"].get("execution_state") == "idle"
        return messages


def shown(outputs: list[dict[str, Any]]) -> str:
    """Return the text of outputs and errors as a student sees it."""
    return "".join(
        f"{output['ename']}: {output['evalue']}"
        if output["output_type"] == "error"
        else output.get("text") or output["data"].get("text/plain", "")
        for output in outputs
    )
