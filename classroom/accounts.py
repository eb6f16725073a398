"""Makes a Unix account for each student and one for the teacher, with a list of their passwords.

Usage: sudo python3 -m classroom.accounts FOLDER --remove

`make hub` makes them. FOLDER is that of the class: its homes lie in FOLDER/home, each readable by
its owner alone, and FOLDER/passwords.csv is for the eyes of root. Who is there keeps the password.
--remove takes the accounts away, and leaves their homes.
"""

import argparse
import csv
import grp
import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STUDENTS = "twelve-students"
TEACHERS = "twelve-teachers"
PASSWORDS = "passwords.csv"
MOST = 999


def names(students: int, prefix: str = "student") -> list[str]:
    """Name the students.

    Args:
        students: How many.
        prefix: What each name begins with.

    Returns:
        Such as student01 to student30; three digits from 100 on.
    """
    width = max(2, len(str(students)))
    return [f"{prefix}{number:0{width}}" for number in range(1, students + 1)]


def password() -> str:
    """Draw one that can be read aloud and typed: 45 bits, and no signs that look alike."""
    syllable = lambda: secrets.choice("bdfghjkmnprstvwz") + secrets.choice("aeiou")  # noqa: E731
    words = "-".join(syllable() + syllable() for _ in range(3))
    return f"{words}-{secrets.randbelow(9000) + 1000}"


def members(folder: Path) -> dict[str, pwd.struct_passwd]:
    """Find the accounts that were made here: those whose home lies in the folder, by name."""
    homes = folder / "home"
    return {one.pw_name: one for one in pwd.getpwall() if Path(one.pw_dir).parent == homes}


def make(folder: Path, students: Sequence[str], teacher: str = "teacher") -> list[str]:
    """Make the accounts that are missing, and note their passwords.

    Args:
        folder: Of the class.
        students: Their names.
        teacher: The name of the teacher's account.

    Returns:
        The names of those that were made now.

    Raises:
        ValueError: If a name is taken by somebody else; then no account is made.
        OSError: If the system cannot make one.
    """
    here = members(folder)
    wanted = {teacher: TEACHERS, **dict.fromkeys(students, STUDENTS)}
    missing = {name: group for name, group in wanted.items() if name not in here}
    for name in missing:
        if taken := _account(name):
            raise ValueError(
                f"the account {name} is not of this class (its home is {taken.pw_dir}): "
                "choose other names with --prefix and --teacher"
            )
    homes = folder / "home"
    homes.mkdir(parents=True, exist_ok=True)
    for group in set(missing.values()):
        _run("groupadd", "--force", group)
    for name, group in missing.items():
        home, left = homes / name, (homes / name).exists()
        _run(
            "useradd", "--home-dir", str(home), *([] if left else ["--create-home"]),
            "--user-group", "--groups", group, "--shell", "/bin/bash",
            "--comment", "Twelve Numbers", name,
        )  # fmt: skip
        if left:  # by --remove; the name may have another number now
            _run("chown", "--recursive", "--no-dereference", f"{name}:", str(home))
        home.chmod(0o700)
        # The password is noted first: an account whose password nobody knows is of no use.
        secret = password()
        _note(folder, {name: secret})
        _run("chpasswd", said=f"{name}:{secret}\n")
    return list(missing)


def remove(folder: Path) -> list[str]:
    """Take the accounts away that were made for this class; the homes stay.

    Args:
        folder: Of the class.

    Returns:
        Their names.

    Raises:
        OSError: If one cannot be removed, as while its owner is at work.
    """
    gone = list(members(folder))
    for name in gone:
        _run("userdel", name)
    for group in (STUDENTS, TEACHERS):
        try:
            if not grp.getgrnam(group).gr_mem:  # else it is used by another class
                _run("groupdel", group)
        except KeyError:
            pass
    (folder / PASSWORDS).unlink(missing_ok=True)
    return gone


def _account(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _note(folder: Path, new: dict[str, str]) -> None:
    """Write a list of passwords that only root reads, whole or not at all."""
    path, aside = folder / PASSWORDS, folder / f".{PASSWORDS}.new"
    known = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            known = {row["account"]: row["password"] for row in csv.DictReader(file)}
    known |= new
    aside.unlink(missing_ok=True)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("account", "password"), *known.items()])
    os.replace(aside, path)


def _run(*words: str, said: str = "") -> None:
    done = subprocess.run(words, input=said, text=True, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


def count(text: str) -> int:
    """Read a number of students.

    Args:
        text: As it was typed; nothing is 0.

    Raises:
        ValueError: If it is no whole number from 1 to 999.
    """
    if text and not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST):
        raise ValueError(f"STUDENTS={text}: it takes a whole number from 1 to {MOST}.")
    return int(text or 0)


def main(words: Sequence[str]) -> int:
    """Remove the accounts of a class, and say so.

    Args:
        words: Of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.accounts", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the class")
    parser.add_argument("--remove", action="store_true", required=True)
    folder = parser.parse_args(words).folder.resolve()
    if os.geteuid():
        print("Accounts are removed by root: put sudo before the command.", file=sys.stderr)
        return 1
    try:
        gone = remove(folder)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Removed {len(gone)} accounts; the homes stay in {folder / 'home'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
