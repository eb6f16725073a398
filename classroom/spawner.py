"""Starts the servers of a class as Unix accounts, each within its memory."""

import asyncio
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner

from classroom.limits import PROCESSES, memory_groups


class ClassroomSpawner(LocalProcessSpawner):
    """A server as its Unix account, with `mem_limit` in force."""

    def user_env(self, env):
        """Tell the server where its owner's progress is kept, and what a teacher has.

        Args:
            env: The variables so far.
        """
        env = super().user_env(env)
        if self.user.admin:
            env["TWELVE_COURSE"] = f"{env['HOME']}/course"
        else:
            # Each check notes its result there, in whichever folder its notebook lies.
            env["TWELVE_PROGRESS"] = f"{env['HOME']}/progress.json"
            config = env["JUPYTER_CONFIG_PATH"]
            env["JUPYTER_CONFIG_PATH"] = f"{config}/student{os.pathsep}{config}"
        return env

    def make_preexec_fn(self, name):
        """Limit the process, then become the account.

        Args:
            name: Of the account.
        """
        become = super().make_preexec_fn(name)
        group = self._group()
        if group:
            group.mkdir(exist_ok=True)
            (group / memory_groups()[1]).write_text(str(self.mem_limit))

        def preexec():
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            else:
                resource.setrlimit(resource.RLIMIT_DATA, (self.mem_limit, self.mem_limit))
            resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))
            become()

        return preexec

    async def stop(self, now=False):
        """Stop the server, and what it left running in its group.

        Args:
            now: Whether not to ask first.
        """
        await super().stop(now)
        if (group := self._group()) and group.is_dir():
            for _ in range(20):
                for pid in (group / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                with suppress(OSError):
                    group.rmdir()
                    break
                await asyncio.sleep(0.1)  # until they have ended

    def _group(self) -> Path | None:
        found = memory_groups()
        return found and found[0] / self.user.name
