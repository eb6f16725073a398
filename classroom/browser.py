"""The browser of a student, for the load test and the test of the hub.

Every request goes through the public address of the hub, with the cookies and the XSRF token that a
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

# Messages that are shown under a cell.
SHOWN = ("stream", "display_data", "execute_result", "error")
# Headers of a browser for a page, and for a request of its code.
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
CODE = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


class RefusedError(Exception):
    """A server refused a request, with the message for the student."""


class Browser:
    """One browser of one student.

    Args:
        hub: The address of the hub, without a slash at its end.
        name: The account.
    """

    def __init__(self, hub: str, name: str) -> None:
        self.hub, self.name = hub, name
        self.http = requests.Session()
        self.own = f"/user/{name}/"

    def open(self, path: str, **form: str) -> requests.Response:
        """Open a page, or send a form; redirects are followed.

        Raises:
            RefusedError: If the server does not show the page.
        """
        method = "POST" if form else "GET"
        response = self.http.request(method, self.hub + path, data=form, headers=PAGE, timeout=120)
        if not response.ok:
            raise RefusedError(f"{path}: status {response.status_code}")
        return response

    def log_in(self, password: str) -> None:
        """Fill in the form of the login page.

        Raises:
            RefusedError: If the hub does not take the password.
        """
        form = self.open("/hub/login").text
        token = re.search(r'name="_xsrf" value="([^"]+)"', form)[1]
        self.open("/hub/login?next=/hub/home", username=self.name, password=password, _xsrf=token)

    def start_server(self, seconds: float) -> None:
        """Start the student's server, follow its progress, and open JupyterLab.

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
        """Send a request to the student's server, as the code of its page does.

        Args:
            method: GET, PUT or POST.
            path: Below the address of the server.
            body: Is sent as JSON.

        Raises:
            RefusedError: If the server refuses.
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
        """Save a notebook, and overwrite the file."""
        about = {"type": "notebook", "format": "json", "content": notebook}
        self.ask("PUT", f"api/contents/{quote(path)}", **about)

    def file(self, path: str) -> bytes:
        """Download a file."""
        return self.open(f"{self.own}files/{quote(path)}").content

    def _token(self, path: str) -> str:
        cookies = self.http.cookies
        return next(c.value for c in cookies if (c.name, c.path) == ("_xsrf", path))

    def cookies(self, path: str) -> str:
        """Return the cookies for an address, as a header."""
        request = requests.Request("GET", self.hub + path).prepare()
        return requests.cookies.get_cookie_header(self.http.cookies, request)


class Kernel:
    """The kernel of a notebook, through a websocket.

    Args:
        browser: The student's browser, after the server started.
        path: The notebook.
    """

    def __init__(self, browser: Browser, path: str) -> None:
        self.browser, self.session = browser, Session()
        about = {"path": path, "name": path.rpartition("/")[2], "type": "notebook"}
        session = browser.ask("POST", "api/sessions", **about, kernel={"name": "python3"})
        self.id = session["kernel"]["id"]
        self.connect()

    def connect(self) -> None:
        """Open the websocket, or open it again."""
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
        """Keep receiving: the server closes a connection that does not answer its pings."""
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
        """Send a cell, and return the id of the message."""
        return self.send("execute_request", code=source, silent=False, store_history=True,
                         user_expressions={}, allow_stdin=False, stop_on_error=False)  # fmt: skip

    def run(self, source: str) -> list[dict[str, Any]]:
        """Run a cell, and return its outputs as in a notebook."""
        messages = self.answer(self.begin(source), 300)
        return [dict(output_from_msg(m)) for m in messages if m["header"]["msg_type"] in SHOWN]

    def answer(self, id: str, seconds: float) -> list[dict[str, Any]]:
        """Collect the messages that answer a message, until the kernel has replied and is idle.

        Raises:
            TimeoutError: If it takes longer.
            websocket.WebSocketException: If the connection broke.
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
    """Return the text of outputs, with errors, as a student reads it."""
    return "".join(
        f"{output['ename']}: {output['evalue']}"
        if output["output_type"] == "error"
        else output.get("text") or output["data"].get("text/plain", "")
        for output in outputs
    )
