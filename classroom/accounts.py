"""Makes Unix accounts for a class: one for each student, and one for the teacher.

Usage: sudo python3 -m classroom.accounts FOLDER --remove

`make hub` creates the accounts. FOLDER is the folder of the class. The home directories are in
FOLDER/home, each readable only by its owner. Only root can read FOLDER/passwords.csv. An existing
account keeps its password. --remove removes the accounts and keeps their home directories.
"""

import argparse
import contextlib
import csv
import grp
import os
import pwd
import re
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STUDENTS = "twelve-students"
TEACHERS = "twelve-teachers"
PASSWORDS = "passwords.csv"
MOST = 999
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")


def names(students: int, prefix: str = "student") -> list[str]:
    """Return the names of the students, such as student01 to student30.

    Args:
        students: The number of students.
        prefix: Prefix of each name.
    """
    width = max(2, len(str(students)))
    return [f"{prefix}{number:0{width}}" for number in range(1, students + 1)]


def password() -> str:
    """Generate a pronounceable password of 45 bits, without letters that look alike."""
    syllable = lambda: secrets.choice("bdfghjkmnprstvwz") + secrets.choice("aeiou")  # noqa: E731
    words = "-".join(syllable() + syllable() for _ in range(3))
    return f"{words}-{secrets.randbelow(9000) + 1000}"


def members(folder: Path) -> dict[str, pwd.struct_passwd]:
    """Map names to the accounts of a class, whose home directories are in its folder."""
    homes = folder / "home"
    return {entry.pw_name: entry for entry in pwd.getpwall() if Path(entry.pw_dir).parent == homes}


def make(folder: Path, students: Sequence[str], teacher: str = "teacher") -> list[str]:
    """Create the missing accounts of a class, and store their passwords.

    Args:
        folder: The folder of the class.
        students: The names of the students.
        teacher: The name of the teacher's account.

    Returns:
        The names of the new accounts.

    Raises:
        ValueError: If a name is invalid or taken by another account; then no account is created.
        OSError: If an account cannot be created.
    """
    existing = members(folder)
    wanted = {teacher: TEACHERS, **dict.fromkeys(students, STUDENTS)}
    missing = {name: group for name, group in wanted.items() if name not in existing}
    for name in missing:
        if not NAME.fullmatch(name):
            raise ValueError(
                "an account name must be lower-case letters, digits, hyphens and underscores, "
                f"got {name!r}"
            )
        try:
            home = pwd.getpwnam(name).pw_dir
        except KeyError:
            continue
        raise ValueError(
            f"the account {name} is not of this class (its home is {home}): "
            "choose other names with --prefix and --teacher"
        )
    homes = folder / "home"
    homes.mkdir(parents=True, exist_ok=True)
    for group in set(missing.values()):
        _run("groupadd", "--force", group)
    for name, group in missing.items():
        home, home_exists = homes / name, (homes / name).exists()
        _run(
            "useradd", "--home-dir", str(home), *([] if home_exists else ["--create-home"]),
            "--user-group", "--groups", group, "--shell", "/bin/bash",
            "--comment", "Twelve Numbers", name,
        )  # fmt: skip
        if home_exists:  # kept by --remove; the new account may have another user ID
            _run("chown", "--recursive", "--no-dereference", f"{name}:", str(home))
        home.chmod(0o700)
        # Store the password first: an account with an unknown password is useless.
        secret = password()
        _store(folder, {name: secret})
        _run("chpasswd", text=f"{name}:{secret}\n")
    return list(missing)


def remove(folder: Path) -> list[str]:
    """Remove the accounts of a class, and keep their home directories.

    Args:
        folder: The folder of the class.

    Returns:
        The names of the removed accounts.

    Raises:
        OSError: If an account cannot be removed, for example while its owner is logged in.
    """
    removed = list(members(folder))
    for name in removed:
        _run("userdel", name)
    for group in (STUDENTS, TEACHERS):
        with contextlib.suppress(KeyError):
            if not grp.getgrnam(group).gr_mem:  # another class may use the group
                _run("groupdel", group)
    (folder / PASSWORDS).unlink(missing_ok=True)
    return removed


def _store(folder: Path, new: dict[str, str]) -> None:
    """Add to the list of passwords with an atomic write; only root can read the list."""
    path, temporary = folder / PASSWORDS, folder / f".{PASSWORDS}.new"
    known = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            known = {row["account"]: row["password"] for row in csv.DictReader(file)}
    known |= new
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("account", "password"), *known.items()])
    os.replace(temporary, path)


def _run(*words: str, text: str = "") -> None:
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def count(text: str) -> int:
    """Parse the number of students.

    Args:
        text: The text from the command line; "" means 0.

    Raises:
        ValueError: If the text is not an integer from 1 to 999.
    """
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST):
        raise ValueError(f"STUDENTS must be a whole number from 1 to {MOST}, got {text!r}.")
    return int(text or 0)


def main(words: Sequence[str]) -> int:
    """Remove the accounts of a class.

    Args:
        words: The arguments of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.accounts", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the class")
    parser.add_argument("--remove", action="store_true", required=True)
    folder = parser.parse_args(words).folder.resolve()
    if os.geteuid():
        print("Only root can remove accounts: put sudo before the command.", file=sys.stderr)
        return 1
    try:
        removed = remove(folder)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Removed {len(removed)} accounts; the homes stay in {folder / 'home'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
