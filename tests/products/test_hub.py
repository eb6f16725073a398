"""A server for a class: its accounts, its command line, its settings, and one real hub.

The last test opens a hub with two temporary accounts. The test needs root and the installation of
`make hub`, in the folder TWELVE_HUB (default /opt/twelve).
"""

import argparse
import contextlib
import csv
import errno
import os
import pwd
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from jupyter_client.connect import LocalPortCache
from traitlets.config import Config, PyFileConfigLoader

from classroom import accounts, limits, start
from classroom.browser import Browser, Kernel, RefusedError, shown
from tests.products.test_solutions import everything

ROOT = Path(__file__).resolve().parents[2]
CLASSROOM = ROOT / "classroom"
HUB = Path(os.environ.get("TWELVE_HUB", "/opt/twelve"))
NEEDS_HUB = pytest.mark.skipif(not find_spec("jupyterhub"), reason="jupyterhub is missing")


def entry(name: str, home: Path) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", os.geteuid(), os.getegid(), "", str(home), "/bin/bash"))


@pytest.fixture
def system(monkeypatch):
    """Record the commands that would change accounts, instead of running them."""
    commands, existing = [], {}

    def run(*words, text=""):
        commands.append((*words, text) if text else words)
        if words[0] == "useradd":
            home = Path(words[words.index("--home-dir") + 1])
            home.mkdir(exist_ok=True)
            existing[words[-1]] = entry(words[-1], home)
        if words[0] == "userdel":
            del existing[words[-1]]

    monkeypatch.setattr(accounts, "_run", run)
    monkeypatch.setattr(accounts.pwd, "getpwall", lambda: [*existing.values()])
    monkeypatch.setattr(accounts.pwd, "getpwnam", lambda name: existing[name])
    return argparse.Namespace(commands=commands, existing=existing)


def passwords(folder: Path) -> dict[str, str]:
    with (folder / accounts.PASSWORDS).open(newline="") as file:
        return {row["account"]: row["password"] for row in csv.DictReader(file)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_names_and_passwords_of_accounts():
    assert accounts.names(3) == ["student01", "student02", "student03"]
    assert accounts.names(100, "x")[::99] == ["x001", "x100"]
    drawn = {accounts.password() for _ in range(1000)}
    assert len(drawn) == 1000
    syllable = "[bdfghjkmnprstvwz][aeiou]"
    assert all(re.fullmatch(rf"({syllable}{syllable}-){{3}}[1-9]\d{{3}}", text) for text in drawn)


def test_make_adds_missing_accounts_and_keeps_passwords(system, tmp_path):
    left = tmp_path / "home/student02"  # left by an account since removed
    left.mkdir(parents=True)
    assert accounts.make(tmp_path, ["student01"]) == ["teacher", "student01"]
    known = passwords(tmp_path)
    assert list(known) == ["teacher", "student01"]
    assert mode(tmp_path / accounts.PASSWORDS) == 0o600
    assert mode(tmp_path / "home/student01") == 0o700
    added = {words[-1]: words for words in system.commands if words[0] == "useradd"}
    assert accounts.STUDENTS in added["student01"] and accounts.TEACHERS in added["teacher"]
    assert accounts.TEACHERS not in added["student01"]
    told = [words[1] for words in system.commands if words[0] == "chpasswd"]
    assert told == [f"{name}:{secret}\n" for name, secret in known.items()]
    system.commands.clear()
    assert accounts.make(tmp_path, ["student01", "student02"]) == ["student02"]
    assert passwords(tmp_path).items() > known.items()
    assert [words for words in system.commands if words[0] == "chown"] == [
        ("chown", "--recursive", "--no-dereference", "student02:", str(left))
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("eve", r"eve is not of this class \(its home is /home/eve\)"),
        ("--uid=0", "must be lower-case letters"),
        ("../eve", "must be lower-case letters"),
        ("a\nroot", "must be lower-case letters"),
    ],
)
def test_make_refuses_a_name_before_any_account_is_made(system, tmp_path, name, message):
    system.existing["eve"] = entry("eve", Path("/home/eve"))
    with pytest.raises(ValueError, match=message):
        accounts.make(tmp_path, ["student01"], name)
    assert not system.commands


def test_remove_deletes_accounts_of_the_class_alone(system, tmp_path, monkeypatch, capsys):
    accounts.make(tmp_path, ["student01"])
    system.existing["root"] = entry("root", Path("/root"))
    system.existing["near"] = entry("near", tmp_path / "home" / "student01" / "near")
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 1000)
    assert accounts.main([str(tmp_path), "--remove"]) == 1
    assert "put sudo before" in capsys.readouterr().err
    monkeypatch.setattr(accounts.os, "geteuid", lambda: 0)
    assert accounts.main([str(tmp_path), "--remove"]) == 0
    assert capsys.readouterr().out.startswith("Removed 2 accounts; the homes stay in")
    assert set(system.existing) == {"root", "near"}
    assert (tmp_path / "home/student01").is_dir()
    assert not (tmp_path / accounts.PASSWORDS).exists()


@pytest.mark.parametrize("text", ["0", "abc", "-1", "1000", "2.5", "²", " 3", "1'; id; '"])
def test_count_of_students_must_be_a_number(text):
    with pytest.raises(ValueError, match="STUDENTS must be a whole number from 1 to 999"):
        accounts.count(text)
    assert [accounts.count(text) for text in ("", "1", "999")] == [0, 1, 999]


@pytest.fixture
def port() -> int:
    """Return the first of three consecutive free ports."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        if all(start.free("127.0.0.1", port + offset) for offset in range(3)):
            return port


@pytest.fixture
def options(tmp_path, port, monkeypatch) -> argparse.Namespace:
    """Return valid command-line options."""
    monkeypatch.setattr(start, "hidden", lambda path: None)
    monkeypatch.setattr(start.shutil, "which", lambda program: f"/usr/bin/{program}")
    return argparse.Namespace(
        students="30", port=str(port), address="127.0.0.1", memory="2G", no_passwords=False,
        hub=tmp_path / "hub", folder=tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"students": "abc"}, "STUDENTS must be"),
        ({"port": "x"}, "PORT must be"),
        ({"port": "65534"}, "PORT must be"),
        ({"memory": "much"}, "MEMORY must be"),
        ({"no_passwords": True, "address": "0.0.0.0"}, "anybody can log in as anybody"),
    ],
)
def test_wrong_options_of_make_hub_are_explained(options, change, message):
    assert start.problem(options, root=True) is None
    vars(options).update(change)
    assert message in start.problem(options, root=True)


def test_make_hub_explains_what_the_machine_lacks(options, monkeypatch):
    assert "only root can make: sudo make hub" in start.problem(options, root=False)
    for program in ("node", "npm"):
        monkeypatch.setattr(start.shutil, "which", lambda name, missing=program: name != missing)
        assert start.problem(options, root=True).startswith(f"{program} is needed")
    monkeypatch.setattr(start, "hidden", lambda path: path if path == options.hub else None)
    assert f"Students cannot enter {options.hub}" in start.problem(options, root=True)
    monkeypatch.setattr(start.sys, "platform", "darwin")
    assert "are those of Linux" in start.problem(options, root=True)


def test_make_hub_refuses_a_python_that_students_cannot_reach(monkeypatch):
    monkeypatch.setattr(start, "hidden", lambda path: Path("/root"))
    with pytest.raises(ValueError, match=r"python3 is inside /root.*: install one .*PYTHON=/usr"):
        start.python_for_all()


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_make_hub_refuses_a_port_in_use(options, port, offset):
    with socket.create_server(("127.0.0.1", port + offset)):
        message = start.problem(options, root=True)
    assert message.startswith(f"Port {port + offset} of 127.0.0.1 is in use")


def test_a_class_is_not_opened_twice_and_the_proxy_of_a_killed_hub_is_taken_over(options, port):
    (options.folder / "hub").mkdir()
    words = [sys.executable, "-c", "print(flush=True); input()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for program, name in (("jupyterhub", "hub.pid"), ("configurable-http-proxy", "proxy.pid")):
        taken = socket.create_server(("127.0.0.1", port))
        with taken, subprocess.Popen([*words, program], **pipes) as process:
            process.stdout.readline()  # wait until it runs
            (options.folder / "hub" / name).write_text(str(process.pid))
            message = start.problem(options, root=True)
            process.communicate(b"\n")
        opened = f"This class is open already: kill {process.pid} closes it."
        assert message == (opened if name == "hub.pid" else None)
    assert start.problem(options, root=True) is None  # both files are stale


def test_hidden_finds_the_first_folder_that_others_cannot_enter():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shut = folder / "shut"
        (shut / "deeper").mkdir(parents=True)
        assert start.hidden(shut / "not yet" / "there") is None
        shut.chmod(0o750)
        (shut / "deeper").chmod(0o700)
        assert start.hidden(shut / "deeper") == shut


def test_installation_is_synchronised_and_keeps_installed_packages(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("src/a.py", "src/old.py", "src/sub/b.py", "src/__pycache__/a.pyc"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    before = os.umask(0o077)  # a restrictive umask
    start._copy(here, there)
    os.umask(before)
    assert set(everything(there)) == {"src/a.py", "src/old.py", "src/sub/b.py"}
    (there / "src/node_modules").mkdir()
    (there / "src/node_modules/kept").touch()
    for path in (here / "src/old.py", here / "src/sub/b.py"):
        path.unlink()
    (here / "src/sub").rmdir()
    (here / "src/a.py").write_text("newer")
    start._copy(here, there)
    assert everything(there) == {"src/a.py": b"newer", "src/node_modules/kept": b""}
    assert mode(there / "src/a.py") == 0o644
    assert [name for name in start.TAKEN if not (ROOT / name).exists()] == []


def test_exchange_keeps_students_apart(system, tmp_path):
    folder, hub = tmp_path / "class", tmp_path / "hub"
    assert start.prepare(folder, hub, 1, "student", "teacher") == ["teacher", "student01"]
    assert (folder / "home/student01/notebooks").readlink() == hub / "notebooks"
    modes = {
        "": 0o755, "hub": 0o700, "home": 0o755, "home/student01": 0o700, "exchange": 0o1777,
        "exchange/twelve": 0o755, "exchange/twelve/outbound": 0o755,
        "exchange/twelve/inbound": 0o3733, "exchange/twelve/feedback": 0o711,
    }  # fmt: skip
    assert {name: mode(folder / name) for name in modes} == modes
    assert start.prepare(folder, hub, 1, "student", "teacher") == []


@pytest.mark.parametrize("name", ["feedback", "inbound", "outbound"])
def test_exchange_follows_no_link_of_the_teacher(system, tmp_path, name):
    folder, hub, secret = tmp_path / "class", tmp_path / "hub", tmp_path / "home of root"
    secret.mkdir(mode=0o700)
    start.prepare(folder, hub, 1, "student", "teacher")
    (folder / "exchange/twelve" / name).rmdir()
    (folder / "exchange/twelve" / name).symlink_to(secret)
    with pytest.raises(ValueError, match=f"{name} must be a folder: remove what is there"):
        start.prepare(folder, hub, 1, "student", "teacher")
    assert mode(secret) == 0o700


def test_memory_group_of_both_versions_of_control_groups(tmp_path, monkeypatch):
    assert limits.memory_groups(tmp_path / "none") is None
    (tmp_path / "one" / "memory").mkdir(parents=True)
    ours = tmp_path / "one/memory/twelve"
    assert limits.memory_groups(tmp_path / "one") == (ours, "memory.limit_in_bytes")
    limits.forget(tmp_path / "one")
    assert not ours.exists()
    (tmp_path / "two").mkdir()
    assert limits.memory_groups(tmp_path / "two") == (tmp_path / "two/twelve", "memory.max")
    for folder in ("two", "two/twelve"):
        assert (tmp_path / folder / "cgroup.subtree_control").read_text() == "+memory"
    monkeypatch.setattr(limits.os, "access", lambda path, how: False)
    assert limits.memory_groups(tmp_path / "one") is None


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Return a function that loads a configuration file with given environment variables."""
    monkeypatch.setattr(LocalPortCache, "find_available_port", None)  # monkeypatch restores it

    def read(name: str, **variables: str) -> Config:
        for variable, value in {"TWELVE_CLASS": str(tmp_path), **variables}.items():
            monkeypatch.setenv(variable, value)
        return PyFileConfigLoader(name, path=str(CLASSROOM)).load_config()

    return read


@NEEDS_HUB
def test_hub_asks_for_passwords_listens_on_loopback_and_limits_memory(
    settings, tmp_path, monkeypatch
):
    c = settings("jupyterhub_config.py")
    assert c.JupyterHub.authenticator_class == "pam"
    assert c.LocalAuthenticator.allowed_groups == {accounts.STUDENTS, accounts.TEACHERS}
    assert c.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert c.Spawner.mem_limit == "2G"
    groups = {accounts.STUDENTS: ["student01"], accounts.TEACHERS: ["teacher"]}
    monkeypatch.setattr("grp.getgrnam", lambda name: argparse.Namespace(gr_mem=groups[name]))
    c = settings("jupyterhub_config.py", TWELVE_HUB_NO_PASSWORDS="1")
    assert c.JupyterHub.authenticator_class == "dummy"
    assert c.Authenticator.allowed_users == {"student01"}
    assert c.Authenticator.admin_users == {"teacher"}


@NEEDS_HUB
def test_servers_of_students_and_of_the_teacher_differ(settings, monkeypatch):
    from classroom.spawner import ClassroomSpawner

    spawner, home = ClassroomSpawner(), pwd.getpwnam("root").pw_dir
    spawner.user = argparse.Namespace(name="root", admin=False)
    student = spawner.user_env({"JUPYTER_CONFIG_PATH": "config"})
    assert student["TWELVE_PROGRESS"] == f"{home}/progress.json"
    assert student["JUPYTER_CONFIG_PATH"] == "config/student:config"
    assert "TWELVE_COURSE" not in student
    spawner.user = argparse.Namespace(name="root", admin=True)
    teacher = spawner.user_env({"JUPYTER_CONFIG_PATH": "config"})
    assert teacher["TWELVE_COURSE"] == f"{home}/course"
    assert teacher["JUPYTER_CONFIG_PATH"] == "config" and "TWELVE_PROGRESS" not in teacher
    monkeypatch.delenv("TWELVE_COURSE", raising=False)
    c = settings("config/jupyter_server_config.py")
    assert c.ServerApp.jpserver_extensions == {"nbgrader.server_extensions.formgrader": False}
    assert c.KernelManager.transport_encryption == "required"
    c = settings("config/jupyter_server_config.py", TWELVE_COURSE="/course")
    assert "jpserver_extensions" not in c.ServerApp
    assert list(c.ServerApp.tornado_settings) == ["static_custom_path", "headers"]


def test_kernels_of_two_accounts_use_disjoint_free_ports(settings, monkeypatch):
    ports = {}
    for account in (1061, 1062):
        monkeypatch.setattr(os, "getuid", lambda account=account: account)
        settings("config/jupyter_server_config.py")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0 if account == 1061 else max(ports[1061]) + 2))
            ports[account] = {LocalPortCache().find_available_port("127.0.0.1") for _ in range(99)}
            assert taken.getsockname()[1] not in ports[account]
    assert not ports[1061] & ports[1062]
    assert all(20_000 <= port < 32_768 for port in ports[1061] | ports[1062])


def test_a_save_is_atomic_on_a_full_disk_and_keeps_modes_and_links(settings, tmp_path, monkeypatch):
    c = settings("config/jupyter_server_config.py")
    files = c.ServerApp.contents_manager_class(root_dir=str(tmp_path))

    def save(name, text):
        with files.atomic_writing(str(tmp_path / name), encoding="utf-8") as file:
            file.write(text)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    save("a.ipynb", "one\n")
    (tmp_path / "a.ipynb").chmod(0o640)
    (tmp_path / "b.ipynb").symlink_to("a.ipynb")
    save("b.ipynb", "zwölf\n")
    assert (tmp_path / "a.ipynb").read_bytes() == "zwölf\n".encode()
    assert (tmp_path / "a.ipynb").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b.ipynb").is_symlink()
    with pytest.raises(OSError, match="No space left"), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        save("a.ipynb", "much more")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb", "b.ipynb"]
    assert (tmp_path / "a.ipynb").read_text(encoding="utf-8") == "zwölf\n"


@pytest.mark.weekly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes accounts")
@pytest.mark.skipif(
    not (HUB / ".venv/with-hub").exists(), reason=f"make hub has not installed the course in {HUB}"
)
def test_two_students_work_on_a_hub_and_find_their_work_after_a_restart(port):
    folder = Path(tempfile.mkdtemp(prefix="twelvetest"))
    folder.chmod(0o755)
    prefix = f"twelvetest{os.getpid()}-"
    words = [
        *(sys.executable, "-m", "classroom.start", "--students", "2", "--prefix", prefix),
        *("--teacher", f"{prefix}teacher", "--folder", folder, "--hub", HUB, "--port", str(port)),
    ]
    first, second = f"{prefix}01", f"{prefix}02"
    home = folder / "home" / first

    def open_server(name: str) -> Kernel:
        browser = Browser(f"http://127.0.0.1:{port}", name)
        browser.log_in(passwords(folder)[name])
        browser.start_server(120)
        return Kernel(browser, "untitled.ipynb")

    try:
        with opened(words):
            secret = passwords(folder)
            for name in (first, "root"):
                with pytest.raises(RefusedError):
                    Browser(f"http://127.0.0.1:{port}", name).log_in(secret[second])
            ada, ben = open_server(first), open_server(second)
            style = ada.browser.open(f"/user/{first}/custom/custom.css").text
            assert style == (ROOT / "tools/jupyterlab/custom.css").read_text()
            with pytest.raises(RefusedError, match=r"status 40[34]"):
                ada.browser.open(f"/user/{second}/lab")
            code = "import os, twelve_lab, torch\nopen('answer.txt', 'w').write('42')\n"
            code += "print(twelve_lab.__file__, torch.get_num_threads())"
            assert shown(ada.run(code)).split() == [f"{HUB}/src/twelve_lab/__init__.py", "1"]
            limited = shown(ben.run(
                "import resource as r\n"
                "print(r.getrlimit(r.RLIMIT_NPROC)[0], r.getrlimit(r.RLIMIT_DATA)[0])\n"
                "print(open('/proc/self/cgroup').read())"
            ))  # fmt: skip
            assert limited.startswith(f"{limits.PROCESSES} ")
            assert f"/twelve/{second}" in limited or limited.split()[1] == str(2 << 30)
            for path in (f"{home}/answer.txt", "/proc/1/environ", folder / "passwords.csv"):
                assert "PermissionError" in shown(ben.run(f"open('{path}')"))
            assert "PermissionError" in shown(ben.run("import twelve; open(twelve.__file__, 'a')"))
        assert (home / "answer.txt").read_text() == "42"
        for name in (first, second):
            command = ["pgrep", "--runstates", "D,R,S,T", "--uid", name]  # ignore zombies
            assert subprocess.run(command, capture_output=True).returncode == 1
        with opened(words):
            assert passwords(folder) == secret
            assert shown(open_server(first).run("print(open('answer.txt').read())")) == "42\n"
    finally:
        accounts.remove(folder)
        subprocess.run(["rm", "-rf", folder], check=True)
    assert not [entry.pw_name for entry in pwd.getpwall() if entry.pw_name.startswith(prefix)]


@contextlib.contextmanager
def opened(words):
    """Open a class, and close it with Ctrl-C."""
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if line.startswith("Memory:"):
                    break
            else:
                pytest.fail("the hub did not start")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest
    assert "Every answer is in" in rest
