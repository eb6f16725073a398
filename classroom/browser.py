"""A browser of the load test: pages, the login form, the API of a server, and a kernel.

Every request goes through the public address of the hub, with the cookies and the XSRF token that a
browser would send.
"""

import json
import re
import time
from collections.abc import Callable
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import requests
import websocket
from nbformat.v4 import output_from_msg

Message = dict[str, Any]
# Messages that are shown under a cell.
SHOWN = ("stream", "display_data", "execute_result", "error")
# Headers of a browser for a page, and for a request of its code.
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
CODE = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


class RefusedError(Exception):
    """A server refused a request, with the message for the student."""


class KernelDiedError(Exception):
    """The kernel ended while a cell ran, and was started again."""


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait until a condition is true, and return its value.

    Args:
        condition: Is called again and again.
        seconds: The longest time to wait.
        what: The condition, in words.

    Raises:
        TimeoutError: If it is not true by then.
    """
    last = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > last:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return value


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
        """Open a page, or send a form; redirects are followed."""
        method = "POST" if form else "GET"
        response = self.http.request(method, self.hub + path, data=form, headers=PAGE, timeout=120)
        if not response.ok:
            error = re.search(r'class="login_error">([^<]+)', response.text)
            message = error[1] if error else f"status {response.status_code}"
            raise RefusedError(f"{path}: {message}")
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
        """Start the student's server, and follow its progress until its page is ready.

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
        self.enter()

    def enter(self) -> None:
        """Open JupyterLab, which asks the hub who this is."""
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
        response = self.http.request(
            method,
            self.hub + self.own + path,
            json=body or None,
            headers={**CODE, "X-XSRFToken": self._token(self.own)},
            timeout=120,
        )
        if not response.ok:
            try:
                reply = response.json()
            except ValueError:
                reply = {}
            message = reply.get("message") or reply.get("reason") or response.reason
            raise RefusedError(f"{response.status_code} {message}")
        return response.json() if response.content else None

    def contents(self, path: str, *, content: bool = True) -> dict[str, Any]:
        """Return a file as the server describes it."""
        return self.ask("GET", f"api/contents/{quote(path)}?content={int(content)}")

    def save(self, path: str, notebook: dict[str, Any]) -> dict[str, Any]:
        """Save a notebook, and overwrite the file."""
        return self.ask(
            "PUT", f"api/contents/{quote(path)}", type="notebook", format="json", content=notebook
        )

    def file(self, path: str) -> bytes:
        """Download a file."""
        return self.open(f"{self.own}files/{quote(path)}").content

    def _token(self, path: str) -> str:
        for cookie in self.http.cookies:
            if cookie.name == "_xsrf" and cookie.path == path:
                return cookie.value
        raise RefusedError(f"no XSRF cookie for {path}: the page was not opened")

    def cookies(self, path: str) -> str:
        """Return the cookies for an address, as a header."""
        request = requests.Request("GET", self.hub + path).prepare()
        return requests.cookies.get_cookie_header(self.http.cookies, request)


class Kernel:
    """The kernel of a notebook, through a websocket.

    Args:
        browser: The student's browser, after the server started.
        path: The notebook. Opening it a second time gives the same kernel.
    """

    def __init__(self, browser: Browser, path: str) -> None:
        self.browser, self.session = browser, uuid4().hex
        session = browser.ask(
            "POST", "api/sessions", path=path, name=path.rpartition("/")[2], type="notebook",
            kernel={"name": "python3"},
        )  # fmt: skip
        self.id = session["kernel"]["id"]
        self.connect()

    def connect(self) -> None:
        """Open the websocket, or open it again."""
        path = f"{self.browser.own}api/kernels/{self.id}/channels"
        self.socket = websocket.create_connection(
            f"ws{self.browser.hub.removeprefix('http')}{path}?session_id={self.session}",
            cookie=self.browser.cookies(path),
            origin=self.browser.hub,
            header=["Sec-Fetch-Mode: websocket", "Sec-Fetch-Site: same-origin"],
        )
        self.messages: Queue[Message | Exception] = Queue()
        Thread(target=self._listen, args=(self.socket, self.messages), daemon=True).start()

    @staticmethod
    def _listen(socket: websocket.WebSocket, messages: Queue) -> None:
        """Receive all the time: a server closes a connection that does not answer its pings."""
        try:
            while text := socket.recv():
                messages.put(json.loads(text))
            raise websocket.WebSocketConnectionClosedException("closed by the server")
        except (websocket.WebSocketException, OSError) as error:
            messages.put(error)

    def send(self, kind: str, **content: Any) -> str:
        """Send a message, and return its id."""
        id = uuid4().hex
        header = {"msg_id": id, "msg_type": kind, "username": "", "session": self.session}
        header |= {"version": "5.4", "date": ""}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        self.socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return id

    def receive(self, seconds: float) -> Message:
        """Return the next message of the kernel.

        Raises:
            TimeoutError: If there is none.
            websocket.WebSocketException: If the connection broke.
        """
        try:
            message = self.messages.get(timeout=max(seconds, 0.01))
        except Empty:
            raise TimeoutError(f"no message of the kernel for {seconds:.0f} s") from None
        if isinstance(message, Exception):
            raise message
        return message

    def ready(self, seconds: float) -> None:
        """Wait until the kernel answers."""
        self.answer(self.send("kernel_info_request"), seconds)

    def begin(self, source: str) -> str:
        """Send a cell, and return the id of the message."""
        return self.send("execute_request", code=source, silent=False, store_history=True,
                         user_expressions={}, allow_stdin=False, stop_on_error=False)  # fmt: skip

    def run(self, source: str, seconds: float = 300) -> list[dict[str, Any]]:
        """Run a cell, and return its outputs as in a notebook.

        Args:
            source: The code.
            seconds: The longest time to wait.
        """
        messages = self.answer(self.begin(source), seconds)
        return [dict(output_from_msg(m)) for m in messages if m["header"]["msg_type"] in SHOWN]

    def answer(self, id: str, seconds: float) -> list[Message]:
        """Collect the messages that answer a message, until the kernel has replied and is idle.

        Raises:
            KernelDiedError: If the kernel ended instead.
            TimeoutError: If it takes longer.
        """
        last, messages, replied, idle = time.monotonic() + seconds, [], False, False
        while not (replied and idle):
            message = self.receive(last - time.monotonic())
            state = message["content"].get("execution_state")
            if state in ("restarting", "dead"):
                raise KernelDiedError(state)
            if message["parent_header"].get("msg_id") != id:
                continue
            messages.append(message)
            replied |= message["channel"] == "shell"
            idle |= state == "idle"
        return messages


def shown(outputs: list[dict[str, Any]]) -> str:
    """Return the text of outputs, with errors, as a student reads it."""
    return "".join(
        f"{output['ename']}: {output['evalue']}"
        if output["output_type"] == "error"
        else output.get("text") or output["data"].get("text/plain", "")
        for output in outputs
    )
