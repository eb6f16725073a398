"""Starts each server of a class under a Unix account, with a memory limit."""

import asyncio
import os
import resource

from jupyterhub.spawner import LocalProcessSpawner

from classroom import limits


class ClassroomSpawner(LocalProcessSpawner):
    """A server under the Unix account of its owner, with `mem_limit` enforced."""

    def user_env(self, env):
        """Add the path of a student's progress file, or of a teacher's course.

        Args:
            env: The environment variables so far.
        """
        env = super().user_env(env)
        if self.user.admin:
            env["TWELVE_COURSE"] = f"{env['HOME']}/course"
        else:
            # Checks in all notebooks store their results in this file.
            env["TWELVE_PROGRESS"] = f"{env['HOME']}/progress.json"
            config = env["JUPYTER_CONFIG_PATH"]
            env["JUPYTER_CONFIG_PATH"] = f"{config}/student{os.pathsep}{config}"
        return env

    def make_preexec_fn(self, name):
        """Apply the resource limits, then switch to the account.

        Args:
            name: The name of the account.
        """
        become = super().make_preexec_fn(name)
        group = limits.open_group(self.user.name, self.mem_limit)

        def preexec():
            if group:
                (group / "cgroup.procs").write_text(str(os.getpid()))
            else:
                resource.setrlimit(resource.RLIMIT_DATA, (self.mem_limit, self.mem_limit))
            resource.setrlimit(resource.RLIMIT_NPROC, (limits.PROCESSES, limits.PROCESSES))
            become()

        return preexec

    async def stop(self, now=False):
        """Stop the server, and kill the remaining processes in its group.

        Args:
            now: Whether to kill the server immediately.
        """
        await super().stop(now)
        if groups := limits.memory_groups():
            await asyncio.to_thread(limits.close_group, groups[0] / self.user.name)
