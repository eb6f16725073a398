"""What a student's browser says to a hub: pages, the login form, the API of a server, a kernel.

Nothing here knows the hub from within: every request goes through its public address, with the
cookies and the XSRF token that a browser would send.
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
# What is shown under a cell.
SHOWN = ("stream", "display_data", "execute_result", "error")
# As a browser marks a page that is opened, and what the code of a page asks for.
PAGE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
CODE = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}


class RefusedError(Exception):
    """A server said no, with what the student is shown."""


class KernelDiedError(Exception):
    """The kernel ended while a cell ran, and was started again."""


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for something, and return what it gives.

    Args:
        condition: What is asked again and again, until it is true.
        seconds: How long.
        what: What is waited for, in words.

    Raises:
        TimeoutError: If it is not true by then.
    """
    last = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > last:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
    return found


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
        """Open a page, or send its form where one is given; redirects are followed."""
        way = "POST" if form else "GET"
        answer = self.http.request(way, self.hub + path, data=form, headers=PAGE, timeout=120)
        if not answer.ok:
            said = re.search(r'class="login_error">([^<]+)', answer.text)
            raise RefusedError(f"{path}: {said[1] if said else f'status {answer.status_code}'}")
        return answer

    def log_in(self, password: str) -> None:
        """Fill in the form of the login page.

        Raises:
            RefusedError: If the hub does not take the password.
        """
        form = self.open("/hub/login").text
        token = re.search(r'name="_xsrf" value="([^"]+)"', form)[1]
        self.open("/hub/login?next=/hub/home", username=self.name, password=password, _xsrf=token)

    def start_server(self, seconds: float) -> None:
        """Ask for the student's own server, and follow its progress until its page is there.

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
        """Open JupyterLab, which lets the hub say who this is."""
        self.open(f"{self.own}lab")

    def ask(self, way: str, path: str, /, **body: Any) -> Any:
        """Ask the student's server something, as the code of its page does.

        Args:
            way: GET, PUT, POST, PATCH or DELETE.
            path: Below the address of the server.
            body: What is sent, as JSON.

        Raises:
            RefusedError: If the answer is no.
        """
        answer = self.http.request(
            way,
            self.hub + self.own + path,
            json=body or None,
            headers={**CODE, "X-XSRFToken": self._token(self.own)},
            timeout=120,
        )
        if not answer.ok:
            raise RefusedError(f"{answer.status_code} {_message(answer)}")
        return answer.json() if answer.content else None

    def contents(self, path: str, *, content: bool = True) -> dict[str, Any]:
        """Give a file as the server describes it."""
        return self.ask("GET", f"api/contents/{quote(path)}?content={int(content)}")

    def save(self, path: str, notebook: dict[str, Any]) -> dict[str, Any]:
        """Save a notebook, whatever is there."""
        return self.ask(
            "PUT", f"api/contents/{quote(path)}", type="notebook", format="json", content=notebook
        )

    def file(self, path: str) -> bytes:
        """Download a file as it lies on the disk."""
        return self.open(f"{self.own}files/{quote(path)}").content

    def _token(self, path: str) -> str:
        found = [one for one in self.http.cookies if one.name == "_xsrf" and one.path == path]
        if not found:
            raise RefusedError(f"no XSRF cookie for {path}: the page was not opened")
        return found[0].value

    def cookies(self, path: str) -> str:
        """Give the cookies that belong to an address, as one line."""
        asked = requests.Request("GET", self.hub + path).prepare()
        return requests.cookies.get_cookie_header(self.http.cookies, asked)


class Kernel:
    """The kernel of a notebook, through a websocket.

    Args:
        browser: Of the student, with the server started.
        path: The notebook. Who opens it a second time gets the same kernel.
    """

    def __init__(self, browser: Browser, path: str) -> None:
        self.browser, self.session = browser, uuid4().hex
        found = browser.ask(
            "POST",
            "api/sessions",
            path=path,
            name=path.rpartition("/")[2],
            type="notebook",
            kernel={"name": "python3"},
        )
        self.id = found["kernel"]["id"]
        self.connect()

    def connect(self) -> None:
        """Open the websocket, again where the last one broke."""
        path = f"{self.browser.own}api/kernels/{self.id}/channels"
        self.socket = websocket.create_connection(
            f"ws{self.browser.hub.removeprefix('http')}{path}?session_id={self.session}",
            cookie=self.browser.cookies(path),
            origin=self.browser.hub,
            header=["Sec-Fetch-Mode: websocket", "Sec-Fetch-Site: same-origin"],
        )
        self.heard: Queue[Message | Exception] = Queue()
        Thread(target=self._listen, args=(self.socket, self.heard), daemon=True).start()

    @staticmethod
    def _listen(socket: websocket.WebSocket, heard: Queue) -> None:
        """Take what comes, always: a server closes a connection that does not answer its pings."""
        try:
            while said := socket.recv():
                heard.put(json.loads(said))
            raise websocket.WebSocketConnectionClosedException("closed by the server")
        except (websocket.WebSocketException, OSError) as error:
            heard.put(error)

    def send(self, kind: str, **content: Any) -> str:
        """Send a message, and return its id."""
        id = uuid4().hex
        header = {"msg_id": id, "msg_type": kind, "username": "", "session": self.session}
        header |= {"version": "5.4", "date": ""}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        self.socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return id

    def receive(self, seconds: float) -> Message:
        """Give the next message of the kernel.

        Raises:
            TimeoutError: If there is none.
            websocket.WebSocketException: If the connection broke.
        """
        try:
            said = self.heard.get(timeout=max(seconds, 0.01))
        except Empty:
            raise TimeoutError(f"the kernel says nothing for {seconds:.0f} s") from None
        if isinstance(said, Exception):
            raise said
        return said

    def ready(self, seconds: float) -> None:
        """Wait until the kernel answers."""
        self.answer(self.send("kernel_info_request"), seconds)

    def begin(self, source: str) -> str:
        """Send a cell to be run, and return the id of the message."""
        return self.send("execute_request", code=source, silent=False, store_history=True,
                         user_expressions={}, allow_stdin=False, stop_on_error=False)  # fmt: skip

    def run(self, source: str, seconds: float = 300) -> list[dict[str, Any]]:
        """Run a cell.

        Args:
            source: Its code.
            seconds: How long it may take.

        Returns:
            Its outputs, as a notebook holds them.
        """
        return outputs(self.answer(self.begin(source), seconds))

    def answer(self, id: str, seconds: float) -> list[Message]:
        """Collect what the kernel says to a message, until it has answered and is idle.

        Raises:
            KernelDiedError: If it ended instead.
            TimeoutError: If it takes longer.
        """
        last, found, replied, idle = time.monotonic() + seconds, [], False, False
        while not (replied and idle):
            message = self.receive(last - time.monotonic())
            state = message["content"].get("execution_state")
            if state in ("restarting", "dead"):
                raise KernelDiedError(state)
            if message["parent_header"].get("msg_id") != id:
                continue
            found.append(message)
            replied |= message["channel"] == "shell"
            idle |= state == "idle"
        return found


def outputs(messages: list[Message]) -> list[dict[str, Any]]:
    """Make outputs of a cell of what its kernel said; pieces of one stream become one.

    Args:
        messages: In the order in which they came.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["header"]["msg_type"] not in SHOWN:
            continue
        one = output_from_msg(message)
        if found and one.output_type == "stream" and one.get("name") == found[-1].get("name"):
            found[-1]["text"] += one.text
        else:
            found.append(dict(one))
    return found


def shown(outputs: list[dict[str, Any]]) -> str:
    """Give the text of outputs, errors too, as a student reads it."""
    return "\n".join(
        f"{one['ename']}: {one['evalue']}"
        if one["output_type"] == "error"
        else one.get("text") or one["data"].get("text/plain", "")
        for one in outputs
    )


def _message(answer: requests.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        return answer.reason
    return said.get("message") or said.get("reason") or answer.reason
