"""The files of a class on a cluster, which no test can run: they agree with the project and fit it.

The chart's own schema has 3,200 lines and is no package. It was held against our values by hand;
what is checked here is a table of the keys that we set, and what follows from the project itself.
"""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from classroom.kubernetes.exchange import DONE, gather, give_back

ROOT = Path(__file__).resolve().parents[2]
CLASSROOM = ROOT / "classroom"
TEXT = (CLASSROOM / "kubernetes" / "values.yaml").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(
    line.split(" ")[0].split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if "==" in line
)

# What the schema of the chart has in these places. One that takes anything is a dict or a list.
KEYS = {
    "hub.config.JupyterHub.authenticator_class": str,
    "hub.config.JupyterHub.admin_access": bool,
    "hub.config.Authenticator.admin_users": list,
    "hub.config.Authenticator.allow_all": bool,
    "hub.config.Authenticator.username_pattern": str,
    "hub.config.NativeAuthenticator": dict,
    "hub.concurrentSpawnLimit": int,
    "hub.extraConfig": dict,
    "proxy.https.enabled": bool,
    "proxy.https.hosts": list,
    "proxy.https.letsencrypt.contactEmail": str,
    "singleuser.image.name": str,
    "singleuser.image.tag": str,
    "singleuser.uid": int,
    "singleuser.allowPrivilegeEscalation": bool,
    "singleuser.startTimeout": int,
    "singleuser.defaultUrl": str,
    "singleuser.memory.guarantee": str,
    "singleuser.memory.limit": str,
    "singleuser.cpu.guarantee": float,
    "singleuser.cpu.limit": int,
    "singleuser.storage.type": str,
    "singleuser.storage.capacity": str,
    "singleuser.storage.extraVolumes": dict,
    "singleuser.initContainers": list,
    "singleuser.extraEnv": dict,
    "singleuser.lifecycleHooks.postStart": dict,
    "singleuser.networkPolicy.egressAllowRules.nonPrivateIPs": bool,
    "cull.timeout": int,
    "cull.adminUsers": bool,
    "scheduling.podPriority.enabled": bool,
    "scheduling.userPlaceholder.replicas": int,
    "prePuller.hook.enabled": bool,
    "prePuller.continuous.enabled": bool,
}


class OnceLoader(yaml.SafeLoader):
    """Reads YAML, of which the last of two equal keys would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice, before line {node.end_mark.line + 1}: {keys}"
        return super().construct_mapping(node, deep)


VALUES = yaml.load(TEXT, OnceLoader)
SERVER = VALUES["singleuser"]
EXCHANGE = "/srv/nbgrader/exchange"


def leaves(values: dict, before: str = "") -> Iterator[tuple[str, Any]]:
    """List the settings by their path, as deep as the table goes."""
    for key, value in values.items():
        path = f"{before}{key}"
        if path not in KEYS and isinstance(value, dict):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def instructions() -> list[tuple[str, str]]:
    """Read the Dockerfile as Docker does: a comment may stand between the lines of one."""
    lines = (CLASSROOM / "Dockerfile").read_text(encoding="utf-8").splitlines()
    kept = "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return [tuple(line.split(" ", 1)) for line in kept.replace("\\\n", " ").splitlines()]


STEPS = instructions()
RUNS = [words for name, words in STEPS if name == "RUN"]
COPIES = [words.split() for name, words in STEPS if name == "COPY"]
CLUSTER = PAGE.partition("### On a cluster\n")[2].partition("\n### ")[0]


def mebibytes(row: str) -> int:
    """Read what a row of the page's table says was measured, at its peak."""
    return int(re.search(rf"^\| {row} \| (\d+) MiB \|", CLUSTER, re.M)[1])


# The values


def test_each_setting_is_one_of_the_chart_and_of_its_type():
    found = dict(leaves(VALUES))
    assert {path: type(value) for path, value in found.items()} == KEYS


def test_a_key_that_stands_twice_is_noticed():
    with pytest.raises(AssertionError, match="twice, before line 3"):
        yaml.load("a: 1\na: 2\n", OnceLoader)


def test_nobody_comes_in_without_a_password():
    hub = VALUES["hub"]["config"]
    assert hub["JupyterHub"]["authenticator_class"] == "native"
    assert hub["NativeAuthenticator"]["open_signup"] is False
    assert VALUES["proxy"]["https"]["enabled"]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("anna", True),
        ("s3", True),
        ("x", False),
        ("anna+bob", False),
        ("a/b", False),
        ("..", False),
        ("Anna", False),
        ("anna\n", False),
        ("a" * 32, False),
    ],
)
def test_a_name_is_a_folder_and_a_part_of_a_file_name(name, allowed):
    pattern = VALUES["hub"]["config"]["Authenticator"]["username_pattern"]
    assert bool(re.match(pattern, name)) == allowed  # as JupyterHub compares: from the beginning


def started(admin: bool, spawner: SimpleNamespace | None = None) -> SimpleNamespace:
    """Let the hub prepare a server for a student or the teacher."""
    settings = {"volume_mounts": {"volume-anna": "the home"}, "environment": SERVER["extraEnv"]}
    c = SimpleNamespace(KubeSpawner=SimpleNamespace(**settings))
    exec(VALUES["hub"]["extraConfig"]["exchange"], {"c": c})
    spawner = spawner or SimpleNamespace()
    spawner.user = SimpleNamespace(admin=admin)
    c.KubeSpawner.pre_spawn_hook(spawner)
    return spawner


def mounts(admin: bool, spawner: SimpleNamespace | None = None) -> dict[str, dict]:
    """Return what a server gets beside its home, by the folder it stands in."""
    found = started(admin, spawner).volume_mounts
    assert min(found) == "volume-anna"  # mounted first: another lies in it
    return {one["mountPath"]: one for one in found.values() if one != "the home"}


def test_a_student_writes_nowhere_but_in_a_folder_of_their_own():
    student = mounts(admin=False)
    writable = [one["subPath"] for one in student.values() if not one["readOnly"]]
    assert writable == ["exchange/twelve/arrived/{username}"]
    shared = [one["subPath"] for one in student.values() if "{username}" not in one["subPath"]]
    assert shared == ["exchange/twelve/outbound"]
    assert student[f"{EXCHANGE}/twelve/inbound"]["subPath"] in writable


def test_the_teacher_has_the_exchange_until_they_are_none():
    spawner = SimpleNamespace()
    assert mounts(True, spawner)[EXCHANGE]["subPath"] == "exchange"
    assert EXCHANGE not in mounts(False, spawner)
    names = {one["name"] for one in mounts(False).values()}
    assert names == set(SERVER["storage"]["extraVolumes"]) == {"exchange"}


def test_the_folders_that_are_mounted_are_made_before_by_their_owner():
    (first,) = SERVER["initContainers"]
    (volume,) = first["volumeMounts"]
    assert first["image"] == f"{SERVER['image']['name']}:{SERVER['image']['tag']}"
    assert first["securityContext"]["runAsUser"] == SERVER["uid"]
    assert volume["name"] in SERVER["storage"]["extraVolumes"]
    program, parents, *folders = first["command"]
    assert (program, parents) == ("mkdir", "--parents")
    mounted = {one["subPath"] for one in mounts(False).values()}
    assert {folder.removeprefix(f"{volume['mountPath']}/") for folder in folders} == mounted


def test_servers_have_the_settings_of_the_class_on_one_machine():
    folder = SERVER["extraEnv"]["JUPYTER_CONFIG_PATH"].replace("/opt/twelve", str(ROOT))
    settings = Path(folder, "nbgrader_config.py").read_text()
    assert 'course_id = "twelve"' in settings
    servers = Path(folder, "jupyter_server_config.py").read_text()
    read = set(re.findall(r'environ(?:\.get\(|\[)?"(\w+)"', settings + servers))
    assert read == {"TWELVE_EXCHANGE", "TWELVE_COURSE"}
    assert SERVER["extraEnv"]["TWELVE_EXCHANGE"] == EXCHANGE
    idle = int(re.search(r"cull_idle_timeout = (\d+)", servers)[1])
    ends = int(re.search(r"shutdown_no_activity_timeout = (\d+)", servers)[1])
    assert 0 < idle + ends <= VALUES["cull"]["timeout"]


def test_the_teacher_alone_has_the_pages_for_grading():
    spawner = started(True)
    assert spawner.environment == SERVER["extraEnv"] | {"TWELVE_COURSE": "/home/jovyan/course"}
    student = started(False, spawner).environment
    assert "TWELVE_COURSE" not in student
    first, second = student["JUPYTER_CONFIG_PATH"].split(":")
    assert second == SERVER["extraEnv"]["JUPYTER_CONFIG_PATH"]
    hidden = Path(first.replace("/opt/twelve", str(ROOT)), "labconfig/page_config.json")
    assert "@jupyter/nbgrader:formgrader" in hidden.read_text()


def test_the_course_is_copied_once_and_answers_are_kept(tmp_path):
    course, home = tmp_path / "course", tmp_path / "home"
    for path in ("notebooks/04.ipynb", "docs/page.md", "src/layer.py", "README.md"):
        (course / path).parent.mkdir(parents=True, exist_ok=True)
        (course / path).write_text("as released")
    home.mkdir()
    *shell, words = SERVER["lifecycleHooks"]["postStart"]["exec"]["command"]
    start = [*shell, words.replace("/opt/twelve", shlex.quote(str(course)))]

    def begin() -> str:
        subprocess.run(start, env=os.environ | {"HOME": str(home)}, check=True)
        return (home / "twelve/notebooks/04.ipynb").read_text()

    (home / ".twelve").mkdir()  # a copy that was cut short
    assert begin() == "as released"
    assert sorted(os.listdir(home / "twelve")) == ["README.md", "docs", "notebooks", "src"]
    (home / "twelve/notebooks/04.ipynb").write_text("answered")
    assert begin() == "answered"
    assert sorted(os.listdir(home / "twelve")) == ["README.md", "docs", "notebooks", "src"]
    assert SERVER["extraEnv"]["TWELVE_PROGRESS"] == "/home/jovyan/twelve/notebooks"


def test_a_home_that_cannot_be_written_does_not_end_the_server(tmp_path):
    start = SERVER["lifecycleHooks"]["postStart"]["exec"]["command"]
    home = {"HOME": str(tmp_path / "missing"), "PATH": os.environ["PATH"]}
    subprocess.run(start, env=home, cwd=tmp_path, check=True)
    assert os.listdir(tmp_path) == []


def test_memory_is_above_what_was_measured():
    guarantee, limit = (
        int(SERVER["memory"][key].removesuffix("M")) for key in ("guarantee", "limit")
    )
    server, kernel = mebibytes("server"), mebibytes("kernel, lesson 04")
    assert server + kernel < guarantee < 1.3 * (server + kernel)
    assert 1.2 * (server + 2 * kernel) < limit


# The image


def test_each_line_of_the_dockerfile_is_an_instruction_and_the_shell_can_read_it():
    assert STEPS[0][0] == "FROM"
    known = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "CMD"}
    assert {name for name, _ in STEPS} <= known
    for words in RUNS:
        subprocess.run(["sh", "-n", "-c", words], check=True)


def test_what_the_image_copies_is_there_and_may_enter():
    rules = (CLASSROOM / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in rules if line.startswith("!")}
    copied = {source for *sources, _ in COPIES for source in sources}
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_what_one_has_solved_or_built_stays_out_of_the_image():
    rules = (CLASSROOM / "Dockerfile.dockerignore").read_text().splitlines()
    out = [rule for rule in rules if rule and rule[0] not in "!#"]
    for path in (
        "notebooks/progress.json",
        "src/twelve/__pycache__",
        "src/twelve.egg-info",
        "classroom/node_modules",
    ):
        assert any(fnmatch(path, rule) for rule in out if rule != "*"), path
    assert out[0] == "*"


def test_every_version_is_a_pin_of_the_project():
    base = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-\w+", dict(STEPS)["FROM"])
    assert SpecifierSet(PROJECT["requires-python"]).contains(base[1])
    installs = [line for words in RUNS for line in words.split("&&") if "pip install" in line]
    torch, rest = installs
    assert "\"$(grep '^torch==' constraints.txt)\"" in torch and "torch" in PINS
    assert "--constraint constraints.txt" in rest
    named = " ".join(installs).replace("'^torch=='", "")
    assert re.findall(r"\S*[=<>~]=\S*|\S*\d\.\d\S*", named) == []


def test_the_image_takes_extras_of_the_project_with_the_server_and_nbgrader():
    extras = re.search(r"'\.\[([\w,]+)\]'", " ".join(RUNS))[1].split(",")
    asked = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    names = {re.match(r"[\w-]+", line)[0] for line in asked}
    assert {"jupyterlab", "nbgrader", "jupyterhub", "matplotlib"} <= names <= set(PINS) | {"twelve"}


def test_the_hub_of_the_chart_is_that_of_the_image():
    found = re.search(r"`jupyterhub` ([\d.]+), whose hub is\n# JupyterHub (\d+\.\d+)", TEXT)
    chart, hub = found.groups()
    assert PINS["jupyterhub"].startswith(f"{hub}.")
    assert f"--version {chart} " in CLUSTER


def test_the_image_bears_the_release_and_the_name_of_the_values():
    named = f"{SERVER['image']['name']}:{SERVER['image']['tag']}"
    assert SERVER["image"]["tag"] == PROJECT["version"]
    lines = (CLASSROOM / "Dockerfile").read_text() + CLUSTER
    assert set(re.findall(r"registry\.example\.org/\S+", lines)) == {named}


def test_no_one_in_the_image_is_root():
    users = [words for name, words in STEPS if name == "USER"]
    assert users == [str(SERVER["uid"])] != ["0"]
    assert f"--uid {SERVER['uid']} " in RUNS[0] and RUNS[0].endswith("jovyan")
    after = [name for name, _ in STEPS[STEPS.index(("USER", users[-1])) :]]
    assert not {"RUN", "COPY"} & set(after)


def test_the_image_has_the_folders_into_which_the_exchange_is_mounted():
    made = next(words for words in RUNS if "install --directory" in words).split()
    inside = {path for path in (*mounts(False), *mounts(True)) if not path.startswith("/home")}
    assert inside <= set(made)
    assert "--owner=jovyan" in made


# The exchange


def hand_in(exchange: Path, student: str, name: str, files: dict[str, str]) -> Path:
    """Put a submission where a student's server would."""
    work = exchange / "arrived" / student / name
    work.mkdir(parents=True)
    for file, text in files.items():
        (work / file).write_text(text)
    return work


TIME = "2026-11-23 13:07:00.008393 UTC"
WHOLE = {"04.ipynb": "answers", DONE: TIME}
ANNA, BERT = f"anna+04+{TIME}+x_-=", f"bert+04+{TIME}+x"


def test_what_arrived_is_collected_once_and_stays_as_a_receipt(tmp_path):
    work = hand_in(tmp_path, "anna", ANNA, WHOLE)
    assert gather(tmp_path) == [f"anna: {ANNA}"]
    assert (tmp_path / "inbound" / ANNA / "04.ipynb").read_text() == "answers"
    assert (work / "04.ipynb").exists()
    assert gather(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        BERT,
        f"anna{BERT}",
        f"anna+{BERT}",  # nbgrader would read the time where the assignment stands
        f"anna+04+{TIME}",
        "anna+04+2026-13-23 13:07:00.008393 UTC+x",
        "anna+04+soon+x",
        "04",
    ],
)
def test_nobody_hands_in_under_a_name_of_another_or_one_that_nbgrader_cannot_read(tmp_path, name):
    hand_in(tmp_path, "anna", name, WHOLE)
    assert gather(tmp_path) == [f"anna: {name} left out: no name that nbgrader gives work of anna"]
    assert not (tmp_path / "inbound").exists()


def test_what_is_still_being_copied_waits(tmp_path):
    work = hand_in(tmp_path, "anna", ANNA, {"04.ipynb": "ans"})
    assert "not complete" in gather(tmp_path)[0]
    (work / DONE).write_text(TIME)
    assert gather(tmp_path) == [f"anna: {ANNA}"]


@pytest.mark.parametrize("time", [b"soon", b"\xff"])
def test_a_time_that_nbgrader_cannot_read_does_not_end_its_collection(tmp_path, time):
    work = hand_in(tmp_path, "anna", ANNA, WHOLE)
    (work / DONE).write_bytes(time)
    (line,) = gather(tmp_path)
    assert line.startswith(f"anna: {ANNA} left out: ")
    assert os.listdir(tmp_path / "inbound") == []


def test_links_are_not_followed_and_pipes_not_waited_for(tmp_path):
    secret = tmp_path / "gradebook.db"
    secret.write_text("marks")
    work = hand_in(tmp_path, "anna", ANNA, WHOLE)
    (work / "mine").symlink_to(secret)
    (work / "inside").mkdir()
    (work / "inside/folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    link = ANNA.replace("04", "05")
    (work.parent / link).symlink_to(hand_in(tmp_path, "bert", BERT, WHOLE))
    assert gather(tmp_path) == [
        f"anna: {ANNA}",
        f"anna: {link} left out: it is a link",
        f"bert: {BERT}",
    ]
    taken = tmp_path / "inbound" / ANNA
    assert sorted(os.listdir(taken)) == ["04.ipynb", "inside", DONE]
    assert os.listdir(taken / "inside") == []
    assert sorted(os.listdir(tmp_path / "inbound")) == [ANNA, BERT]


def test_what_cannot_be_read_does_not_keep_the_work_of_others(tmp_path, monkeypatch):
    hand_in(tmp_path, "anna", ANNA, WHOLE)
    hand_in(tmp_path, "bert", BERT, WHOLE)
    copytree = shutil.copytree

    def refuse(work, target, **how):
        copytree(work, target, **how)
        if work.name.startswith("anna"):
            raise PermissionError(f"no right to read {work}")

    monkeypatch.setattr("shutil.copytree", refuse)
    first, second = gather(tmp_path)
    assert first.startswith(f"anna: {ANNA} left out: ") and "no right to read" in first
    assert second == f"bert: {BERT}"
    assert os.listdir(tmp_path / "inbound") == [BERT]


def test_feedback_goes_to_those_whom_it_is_about(tmp_path):
    for student in ("anna", "bert"):
        page = tmp_path / "course/feedback" / student / "04/04.html"
        page.parent.mkdir(parents=True)
        page.write_text(f"for {student}")
    exchange = tmp_path / "exchange"
    for _ in range(2):  # graded again, it is written over
        assert give_back(exchange, tmp_path / "course") == ["anna: 04", "bert: 04"]
    assert (exchange / "returned/bert/04/04.html").read_text() == "for bert"
