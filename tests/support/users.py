"""Real users in a mount namespace of the test's own: names, a /tmp, and processes that run as them.

Needs root, which may be that of a user namespace with more than one user in it."""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import typing

CLONE_NEWNS = 0x00020000
MS_BIND = 0x1000
MS_REC_PRIVATE = 0x4000 | 0x40000
GROUP = "trainers"
GROUP_ID = 20100


class User(typing.NamedTuple):
    name: str
    id: int
    groups: tuple = ()

    @property
    def home(self):
        return pathlib.Path("/tmp/home") / self.name

    def process_options(self):
        """For subprocess: the user's own environment, without places that the test's has."""
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("XDG_", "PUDICA_"))}
        return {"user": self.id, "group": self.id, "extra_groups": list(self.groups),
                "cwd": self.home, "env": {**environment, "HOME": str(self.home), "USER": self.name}}

    def run(self, *command, env=None, **more):
        options = self.process_options()
        options["env"].update(env or {})
        return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=120, check=False, **{**options, **more})


ROOT = User("root", 0)
ADA = User("ada", 20001, (GROUP_ID,))
BOB = User("bob", 20002, (GROUP_ID,))
MALLORY = User("mallory", 20003)
KEEPER = User("keeper", 20004, (GROUP_ID,))
USERS = (ADA, BOB, MALLORY, KEEPER)


def why_not():
    """Why the namespace cannot be made here; None where it can."""
    if os.geteuid() != 0:
        return ("needs root, or a user namespace of several users: newuidmap (package uidmap), "
                "and lines of this user in /etc/subuid and /etc/subgid")
    made = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return None if made.returncode == 0 else "root may make no mount namespace here"


def _mount(source, target, kind, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


def enter_namespace():
    """For good: this process and those that it starts see the users and an empty /tmp."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _mount("none", "/", "none", MS_REC_PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", 0)
    os.chmod("/tmp", 0o1777)
    for file, lines in (
            ("passwd", [f"{u.name}:x:{u.id}:{u.id}::{u.home}:/bin/sh" for u in USERS]),
            ("group", [f"{u.name}:x:{u.id}:" for u in USERS] +
             [f"{GROUP}:x:{GROUP_ID}:ada,bob,keeper"])):
        told = pathlib.Path("/etc", file).read_text(encoding="utf-8") + "\n".join(lines) + "\n"
        copy = pathlib.Path("/tmp", file)
        copy.write_text(told, encoding="utf-8")
        _mount(str(copy), f"/etc/{file}", "none", MS_BIND)
    for user in USERS:
        user.home.mkdir(parents=True, mode=0o755)
        os.chown(user.home, user.id, user.id)
        user.home.chmod(0o700)


@contextlib.contextmanager
def acting_as(user):
    """What this process opens, binds and connects meanwhile is the user's."""
    groups = os.getgroups()
    os.setgroups(list(user.groups))
    os.setegid(user.id)
    os.seteuid(user.id)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
