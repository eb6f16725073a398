"""A class on a server of its own: who gets an account, what is asked before the start, and a hub.

The last test opens a hub with two throw-away accounts. It needs root, and the installation that
`make hub` makes: TWELVE_HUB names its folder, else it is /opt/twelve.
"""

import argparse
import contextlib
import csv
import json
import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests
import websocket
from jupyter_client.connect import LocalPortCache
from traitlets.config import Config, PyFileConfigLoader

from classroom import accounts, limits, start

ROOT = Path(__file__).resolve().parents[2]
CLASSROOM = ROOT / "classroom"
HUB = Path(os.environ.get("TWELVE_HUB", "/opt/twelve"))
NEEDS_HUB = pytest.mark.skipif(not find_spec("jupyterhub"), reason="jupyterhub is missing")


@pytest.fixture
def system(monkeypatch):
    """Keep what would be done to the accounts of this machine, and who there is then."""
    said, there = [], {}

    def run(*words, said_to=said, **given):
        said_to.append((*words, *given.values()))
        if words[0] == "useradd":
            home = Path(words[words.index("--home-dir") + 1])
            home.mkdir(exist_ok=True)
            there[words[-1]] = entry(words[-1], home)
        if words[0] == "userdel":
            del there[words[-1]]

    monkeypatch.setattr(accounts, "_run", run)
    monkeypatch.setattr(accounts.pwd, "getpwall", lambda: [*there.values()])
    monkeypatch.setattr(accounts.pwd, "getpwnam", lambda name: there[name])
    return argparse.Namespace(said=said, there=there)


def entry(name: str, home: Path) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", 1, 1, "", str(home), "/bin/bash"))


def passwords(folder: Path) -> dict[str, str]:
    with (folder / accounts.PASSWORDS).open(newline="") as file:
        return {row["account"]: row["password"] for row in csv.DictReader(file)}


def test_names_have_as_many_digits_as_the_last_one_needs_and_two_at_least():
    assert accounts.names(3) == ["student01", "student02", "student03"]
    assert accounts.names(100, "x")[::99] == ["x001", "x100"]
    assert accounts.names(0) == []


def test_a_password_is_read_aloud_and_no_two_are_alike():
    drawn = {accounts.password() for _ in range(1000)}
    assert len(drawn) == 1000
    syllable = "[bdfghjkmnprstvwz][aeiou]"
    assert all(re.fullmatch(rf"({syllable}{syllable}-){{3}}[1-9]\d{{3}}", one) for one in drawn)


def test_each_account_has_a_home_for_itself_a_group_and_a_password_that_root_reads(
    system, tmp_path
):
    assert accounts.make(tmp_path, ["student01"]) == ["teacher", "student01"]
    known = passwords(tmp_path)
    assert list(known) == ["teacher", "student01"]
    assert stat.S_IMODE((tmp_path / accounts.PASSWORDS).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "home/student01").stat().st_mode) == 0o700
    added = {words[-1]: words for words in system.said if words[0] == "useradd"}
    assert accounts.STUDENTS in added["student01"] and accounts.TEACHERS in added["teacher"]
    assert accounts.TEACHERS not in added["student01"]
    told = [words[1] for words in system.said if words[0] == "chpasswd"]
    assert told == [f"{name}:{secret}\n" for name, secret in known.items()]


def test_made_again_only_those_who_are_missing_are_new(system, tmp_path):
    accounts.make(tmp_path, ["student01"])
    known = passwords(tmp_path)
    system.said.clear()
    assert accounts.make(tmp_path, ["student01", "student02"]) == ["student02"]
    assert {words[-1] for words in system.said if words[0] == "useradd"} == {"student02"}
    assert passwords(tmp_path).items() > known.items()


def test_a_home_that_was_left_is_given_to_the_new_account_of_its_name(system, tmp_path):
    left = tmp_path / "home/student01"
    left.mkdir(parents=True)
    accounts.make(tmp_path, ["student01"])
    assert ("chown", "--recursive", "--no-dereference", "student01:", str(left)) in system.said
    assert sum(words[0] == "chown" for words in system.said) == 1


def test_a_name_that_somebody_else_has_stops_it_before_anybody_is_made(system, tmp_path):
    system.there["teacher"] = entry("teacher", Path("/home/teacher"))
    with pytest.raises(ValueError, match=r"teacher is not of this class \(its home is /home/teac"):
        accounts.make(tmp_path, ["student01"])
    assert not system.said


def test_removal_takes_the_accounts_of_the_class_alone_and_leaves_their_homes(system, tmp_path):
    accounts.make(tmp_path, ["student01"])
    system.there["root"] = entry("root", Path("/root"))
    system.there["near"] = entry("near", tmp_path / "home" / "student01" / "near")
    assert accounts.remove(tmp_path) == ["teacher", "student01"]
    assert set(system.there) == {"root", "near"}
    assert (tmp_path / "home/student01").is_dir()
    assert not (tmp_path / accounts.PASSWORDS).exists()


def test_the_command_removes_and_says_so_or_says_what_is_in_the_way(
    system, tmp_path, monkeypatch, capsys
):
    accounts.make(tmp_path, ["student01"])
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 1000)
    assert accounts.main([str(tmp_path), "--remove"]) == 1
    assert "put sudo before" in capsys.readouterr().err
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 0)
    with monkeypatch.context() as patch:
        patch.setattr(accounts, "_run", lambda *words: accounts.Path("/none").read_text())
        assert accounts.main([str(tmp_path), "--remove"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert accounts.main([str(tmp_path), "--remove"]) == 0
    assert capsys.readouterr().out.startswith("Removed 2 accounts; the homes stay in")


@pytest.mark.parametrize("text", ["0", "abc", "-1", "1000", "2.5", "²", " 3"])
def test_a_number_of_students_that_is_none_is_named(text):
    with pytest.raises(ValueError, match=f"STUDENTS={text}: it takes a whole number from 1 to 999"):
        accounts.count(text)


def test_a_number_of_students_is_read_and_none_may_be_given():
    assert [accounts.count(text) for text in ("", "1", "30", "999")] == [0, 1, 30, 999]


@pytest.fixture
def port() -> int:
    return free_port()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        found = one.getsockname()[1]
    return found if all(start.free("127.0.0.1", found + i) for i in range(3)) else free_port()


@pytest.fixture
def given(tmp_path, port, monkeypatch) -> argparse.Namespace:
    """Give a command line with which nothing is wrong."""
    monkeypatch.setattr(start, "hidden", lambda path: None)
    monkeypatch.setattr(start.shutil, "which", lambda program: f"/usr/bin/{program}")
    return argparse.Namespace(
        students="30", port=str(port), address="127.0.0.1", memory="2G", no_passwords=False,
        hub=tmp_path / "hub", folder=tmp_path,
    )  # fmt: skip


def test_with_nothing_in_the_way_a_class_may_open(given):
    assert start.wrong(given, root=True) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"students": "abc"}, "STUDENTS=abc: it takes a whole number"),
        ({"port": "x"}, "PORT=x: it takes a number from 1 to 65533"),
        ({"port": "65534"}, "PORT=65534: it takes"),
        ({"memory": "much"}, "MEMORY=much: it takes megabytes or gigabytes"),
        ({"no_passwords": True, "address": "0.0.0.0"}, "anybody is whoever they say"),
    ],
)
def test_what_is_wrong_with_the_command_is_said_in_a_sentence(given, change, said):
    vars(given).update(change)
    assert said in start.wrong(given, root=True)


def test_only_root_can_open_a_class(given):
    assert "only root can make: sudo make hub" in start.wrong(given, root=False)


def test_another_system_than_linux_is_refused(given, monkeypatch):
    monkeypatch.setattr(start.sys, "platform", "darwin")
    assert "are those of Linux" in start.wrong(given, root=True)


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_port_that_is_taken_is_named(given, port, behind):
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + behind))
        other.listen()
        assert start.wrong(given, root=True).startswith(f"Port {port + behind} of 127.0.0.1 is tak")


def test_a_class_is_not_opened_twice_and_the_proxy_of_a_dead_hub_is_taken_over(given, port):
    (given.folder / "hub").mkdir()
    words = [sys.executable, "-c", "print(flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for program, named in (("jupyterhub", "hub.pid"), ("configurable-http-proxy", "proxy.pid")):
        with (
            subprocess.Popen([*words, program], **pipes) as process,
            socket.socket() as other,
        ):
            process.stdout.readline()  # it runs
            (given.folder / "hub" / named).write_text(str(process.pid))
            other.bind(("127.0.0.1", port))
            other.listen()
            wrong = start.wrong(given, root=True)
            process.communicate(b"\n")
        assert wrong == {
            "hub.pid": f"This class is open already: kill {process.pid} closes it.",
            "proxy.pid": None,
        }[named]  # fmt: skip
    # The numbers are still there, and belong to nobody.
    assert start.wrong(given, root=True) is None


def test_a_folder_that_students_cannot_pass_is_named(given, monkeypatch):
    monkeypatch.setattr(start, "hidden", lambda path: Path("/root") if path == given.hub else None)
    assert "Students cannot pass /root on the way to" in start.wrong(given, root=True)


@pytest.mark.parametrize("program", ["node", "npm"])
def test_a_program_that_is_missing_is_named(given, monkeypatch, program):
    monkeypatch.setattr(start.shutil, "which", lambda name: None if name == program else name)
    assert start.wrong(given, root=True).startswith(f"{program} is needed, and is not installed")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that every account of this machine can reach."""
    with tempfile.TemporaryDirectory(prefix="twelvetest") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_the_first_folder_that_others_may_not_pass_hides_what_is_in_it(open_folder):
    shut = open_folder / "shut"
    (shut / "deeper").mkdir(parents=True)
    assert start.hidden(shut / "not yet" / "there") is None
    shut.chmod(0o750)
    (shut / "deeper").chmod(0o700)
    assert start.hidden(shut / "deeper") == shut


def test_a_python_that_students_cannot_reach_is_not_taken(monkeypatch):
    monkeypatch.setattr(start, "hidden", lambda path: Path("/root"))
    with pytest.raises(ValueError, match=r"python3 lies behind /root.*: install one .*PYTHON=/usr"):
        start.python_for_all()


def test_the_copy_is_renewed_what_is_gone_goes_and_what_was_installed_stays(tmp_path, request):
    request.addfinalizer(partial(os.umask, os.umask(0o077)))  # as a careful root has it
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("src/a.py", "src/old.py", "src/sub/b.py", "src/__pycache__/a.pyc"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    start._copy(here, there)
    assert files(there) == ["src/a.py", "src/old.py", "src/sub/b.py"]
    (there / "src/node_modules").mkdir()
    (there / "src/node_modules/kept").touch()
    (here / "src/old.py").unlink()
    (here / "src/sub/b.py").unlink()
    (here / "src/sub").rmdir()
    (here / "src/a.py").write_text("newer")
    start._copy(here, there)
    assert files(there) == ["src/a.py", "src/node_modules/kept"]
    assert (there / "src/a.py").read_text() == "newer"
    assert stat.S_IMODE((there / "src/a.py").stat().st_mode) == 0o644


def files(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def test_a_folder_of_a_class_keeps_each_to_what_is_theirs(system, tmp_path, monkeypatch):
    owners = {}
    monkeypatch.setattr(start.os, "chown", lambda path, user, group: owners.update({path: user}))
    folder, hub = tmp_path / "class", tmp_path / "hub"
    assert start.prepare(folder, hub, 1, "student", "teacher") == ["teacher", "student01"]
    assert (folder / "home/student01/notebooks").readlink() == hub / "notebooks"
    modes = {
        "": 0o755, "hub": 0o700, "home": 0o755, "home/student01": 0o700, "exchange": 0o1777,
        "exchange/twelve": 0o755, "exchange/twelve/outbound": 0o755,
        "exchange/twelve/inbound": 0o3733, "exchange/twelve/feedback": 0o711,
    }  # fmt: skip
    assert {name: stat.S_IMODE((folder / name).stat().st_mode) for name in modes} == modes
    course = folder / "exchange/twelve"
    assert set(owners) == {course, *course.iterdir()} and set(owners.values()) == {1}
    assert start.prepare(folder, hub, 1, "student", "teacher") == []


def test_a_hub_that_ends_is_not_waited_for(port, monkeypatch):
    monkeypatch.delattr(start.time, "sleep")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert not start.ready(process, f"http://127.0.0.1:{port}")


def test_what_a_class_takes_of_the_project_is_there():
    assert [name for name in start.TAKEN if not (ROOT / name).exists()] == []


def test_memory_is_limited_where_control_groups_can_be_written(tmp_path):
    assert limits.memory_groups(tmp_path / "none") is None
    (tmp_path / "one" / "memory").mkdir(parents=True)
    assert limits.memory_groups(tmp_path / "one") == (
        tmp_path / "one/memory/twelve",
        "memory.limit_in_bytes",
    )
    (tmp_path / "two").mkdir()
    assert limits.memory_groups(tmp_path / "two") == (tmp_path / "two/twelve", "memory.max")
    for folder in ("two", "two/twelve"):
        assert (tmp_path / folder / "cgroup.subtree_control").read_text() == "+memory"
    limits.forget(tmp_path / "one")
    assert not (tmp_path / "one/memory/twelve").exists()


def test_the_proxy_is_pinned_and_runs_on_the_node_of_debian_12():
    wanted = json.loads((CLASSROOM / "package.json").read_text())["dependencies"]
    locked = json.loads((CLASSROOM / "package-lock.json").read_text())["packages"]
    assert locked[""]["dependencies"] == wanted
    assert {name: locked[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    lowest = {
        name: [int(one) for one in re.findall(r"[>=^ ]+(\d+)", package["engines"]["node"])]
        for name, package in locked.items()
        if "node" in package.get("engines", {})
    }
    assert {name for name, versions in lowest.items() if versions and min(versions) > 18} == set()
    assert "node_modules/configurable-http-proxy" in lowest


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Read the settings of the hub, with variables."""

    def read(**variables: str) -> Config:
        for name, value in {"TWELVE_CLASS": str(tmp_path), **variables}.items():
            monkeypatch.setenv(name, value)
        return PyFileConfigLoader("jupyterhub_config.py", path=str(CLASSROOM)).load_config()

    return read


@NEEDS_HUB
def test_the_hub_asks_for_passwords_listens_on_this_machine_and_limits_memory(settings, tmp_path):
    c = settings()
    assert c.JupyterHub.authenticator_class == "pam"
    assert c.LocalAuthenticator.allowed_groups == {accounts.STUDENTS, accounts.TEACHERS}
    assert "allow_all" not in c.Authenticator
    assert c.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert c.JupyterHub.hub_bind_url == "http://127.0.0.1:8001"
    assert c.ConfigurableHTTPProxy.api_url == "http://127.0.0.1:8002"
    assert c.Spawner.mem_limit == "2G"
    assert c.JupyterHub.db_url == f"sqlite:///{tmp_path}/hub/jupyterhub.sqlite"
    assert c.Spawner.environment["TWELVE_EXCHANGE"] == f"{tmp_path}/exchange"


@NEEDS_HUB
def test_a_student_is_told_where_progress_is_kept_and_a_teacher_where_the_course_is():
    from classroom.spawner import ClassroomSpawner

    spawner, home = ClassroomSpawner(), pwd.getpwnam("root").pw_dir
    given = {"JUPYTER_CONFIG_PATH": "config"}
    spawner.user = argparse.Namespace(name="root", admin=False)
    student = spawner.user_env({**given})
    assert student["TWELVE_PROGRESS"] == f"{home}/progress.json"
    assert student["JUPYTER_CONFIG_PATH"] == "config/student:config"
    assert "TWELVE_COURSE" not in student
    spawner.user = argparse.Namespace(name="root", admin=True)
    teacher = spawner.user_env({**given})
    assert teacher["TWELVE_COURSE"] == f"{home}/course"
    assert teacher["JUPYTER_CONFIG_PATH"] == "config" and "TWELVE_PROGRESS" not in teacher


def test_a_teacher_has_the_formgrader_and_a_student_has_not(monkeypatch):
    # Changed by the settings, and back behind this test.
    monkeypatch.setattr(LocalPortCache, "find_available_port", None)

    def read() -> Config:
        loader = PyFileConfigLoader("jupyter_server_config.py", path=str(CLASSROOM / "config"))
        return loader.load_config()

    formgrader = {"nbgrader.server_extensions.formgrader": False}
    monkeypatch.delenv("TWELVE_COURSE", raising=False)
    assert read().ServerApp.jpserver_extensions == formgrader
    assert read().KernelManager.transport_encryption == "required"
    monkeypatch.setenv("TWELVE_COURSE", "/course")
    assert "jpserver_extensions" not in read().ServerApp


@NEEDS_HUB
def test_without_passwords_only_the_accounts_of_the_class_come_in(settings, monkeypatch):
    groups = {accounts.STUDENTS: ["student01"], accounts.TEACHERS: ["teacher"]}
    monkeypatch.setattr("grp.getgrnam", lambda name: argparse.Namespace(gr_mem=groups[name]))
    c = settings(TWELVE_HUB_NO_PASSWORDS="1")
    assert c.JupyterHub.authenticator_class == "dummy"
    assert c.Authenticator.allowed_users == {"student01"}
    assert c.Authenticator.admin_users == {"teacher"}


class Student:
    """A student at a browser.

    Args:
        hub: Its address.
        name: Of the account.
        password: Of the account.
    """

    def __init__(self, hub: str, name: str, password: str) -> None:
        self.hub, self.name, self.web = hub, name, requests.Session()
        self.web.trust_env = False
        self.web.get(f"{hub}/hub/login")
        token = self.web.cookies.get("_xsrf", path="/hub/")
        answer = self.web.post(
            f"{hub}/hub/login", params={"_xsrf": token}, allow_redirects=False,
            data={"username": name, "password": password},
        )  # fmt: skip
        self.is_in = answer.status_code == 302

    def open(self) -> int:
        """Start the server, and say with which status JupyterLab came."""
        page = self.web.get(f"{self.hub}/hub/spawn")
        for _ in range(240):
            if "spawn-pending" not in page.url:
                break
            time.sleep(0.5)
            page = self.web.get(f"{self.hub}/user/{self.name}/lab")
        return page.status_code

    def run(self, code: str) -> str:
        """Run a cell in a new kernel, and give what it prints."""
        here = f"/user/{self.name}/"
        token = self.web.cookies.get("_xsrf", path=here)
        kernel = self.web.post(
            f"{self.hub}{here}api/kernels", json={}, headers={"X-XSRFToken": token}
        )
        kernel.raise_for_status()
        cookies = [f"{c.name}={c.value}" for c in self.web.cookies if c.path in ("/", here)]
        socket = websocket.create_connection(
            f"{self.hub.replace('http', 'ws')}{here}api/kernels/{kernel.json()['id']}/channels",
            cookie="; ".join(cookies), timeout=120,
        )  # fmt: skip
        with contextlib.closing(socket):
            head = {"msg_id": "one", "msg_type": "execute_request", "session": "one",
                    "username": "", "version": "5.3"}  # fmt: skip
            asked = {"header": head, "parent_header": {}, "metadata": {}, "channel": "shell",
                     "content": {"code": code, "silent": False}}  # fmt: skip
            socket.send(json.dumps(asked))
            said = ""
            while True:
                message = json.loads(socket.recv())
                if message["parent_header"].get("msg_id") != "one":
                    continue
                content = message["content"]
                said += content.get("text", "") + "\n".join(content.get("traceback", []))
                if content.get("execution_state") == "idle":
                    return said


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="accounts are made by root")
@pytest.mark.skipif(
    not (HUB / ".venv/with-hub").exists(), reason=f"make hub has not installed the course in {HUB}"
)
def test_two_students_work_in_a_class_and_it_opens_again_with_their_work(open_folder):
    folder = open_folder
    port, prefix = free_port(), f"twelvetest{os.getpid()}-"
    words = [
        *(sys.executable, "-m", "classroom.start", "--students", "2", "--prefix", prefix),
        *("--teacher", f"{prefix}teacher", "--folder", folder, "--hub", HUB, "--port", str(port)),
    ]
    address, first, second = f"http://127.0.0.1:{port}", f"{prefix}01", f"{prefix}02"
    try:
        with opened(words) as said:
            assert address in said
            secret = passwords(folder)
            assert not Student(address, first, "wrong").is_in
            assert not Student(address, "root", secret[first]).is_in
            one, two = (Student(address, name, secret[name]) for name in (first, second))
            assert one.open() == two.open() == 200
            assert one.web.get(f"{address}/user/{second}/lab").status_code in (403, 404)
            printed = one.run(
                "import os, twelve_lab, torch\n"
                "open('answer.txt', 'w').write('42')\n"
                "print(twelve_lab.__file__, torch.get_num_threads(), os.environ['TWELVE_PROGRESS'])"
            )
            home = folder / "home" / first
            assert printed.split() == [
                f"{HUB}/src/twelve_lab/__init__.py",
                "1",
                f"{home}/progress.json",
            ]
            limited = two.run(
                "import resource as r\n"
                "print(r.getrlimit(r.RLIMIT_NPROC)[0], r.getrlimit(r.RLIMIT_DATA)[0])\n"
                "print(open('/proc/self/cgroup').read())"
            )
            assert limited.startswith(f"{limits.PROCESSES} ")
            assert f"/twelve/{second}" in limited or limited.split()[1] == str(2 << 30)
            assert "PermissionError" in two.run(f"open('{home}/answer.txt')")
            assert "PermissionError" in two.run("open('/proc/1/environ')")
            assert "PermissionError" in two.run("import twelve; open(twelve.__file__, 'a')")
        assert (home / "answer.txt").read_text() == "42"
        assert not running(first) and not running(second)
        with opened(words):
            assert passwords(folder) == secret
            again = Student(address, first, secret[first])
            assert again.open() == 200
            assert again.run("print(open('answer.txt').read())") == "42\n"
    finally:
        accounts.remove(folder)
    assert not [one.pw_name for one in pwd.getpwall() if one.pw_name.startswith(prefix)]


@contextlib.contextmanager
def opened(words):
    """Open a class, give what is said, and close it with Ctrl-C."""
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = ""
            while "Memory:" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            yield said
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "Every answer is in" in rest


def running(name: str) -> bool:
    # Not one that has ended and waits to be noticed.
    command = ["pgrep", "--runstates", "D,R,S,T", "--uid", name]
    return subprocess.run(command, capture_output=True).returncode == 0
