"""What bash, zsh and fish offer for the last word of a command line."""

import os
import pty
import subprocess

import pytest

import unpacked
from conftest import PROGRAM, Terminal, clean_environment
from waiting import wait_for

SHELLS = ("bash", "zsh", "fish")

_BASH = """
source <("$PROGRAM" completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_pudica
printf '%s\\n' "${COMPREPLY[@]}"
"""

# What completion offers goes to a file as well; a line END follows.
_ZSH = """
autoload -Uz compinit; compinit -D -u
source <("$PROGRAM" completion zsh)
bindkey '^I' complete-word
compadd() {
  if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)' '* ]]; then builtin compadd "$@"; return; fi
  local -a offered
  builtin compadd -A offered "$@"
  (( $#offered )) && print -rl -- $offered >> "$OFFERED"
  builtin compadd "$@"
}
comppostfuncs=(ended)
ended() { print END >> "$OFFERED" }
PS1='ready> '
"""


def program_of(shell):
    """The shell and what it needs; the test skips where there is none."""
    found = {"bash": lambda: ("bash", {}), "zsh": unpacked.zsh, "fish": unpacked.fish}[shell]()
    if found is None:
        pytest.skip(f"no {shell}: scripts/test unpacks it (Debian package {shell})")
    return found


def environment_of(changes):
    return clean_environment({**changes, "PROGRAM": PROGRAM,
                              "PATH": os.path.dirname(PROGRAM) + ":" + os.environ["PATH"]})


def _printed(command, environment):
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stderr == "", done.stderr
    return done.stdout


def _bash(words, environment, _):
    command = ["bash", "-c", _BASH, "bash", "pudica", *words]
    return _printed(command, environment_of(environment)).split("\n")


def _fish(words, environment, _):
    program, needed = program_of("fish")
    line = " ".join(["pudica", *words])
    script = f"source ($PROGRAM completion fish | psub); complete -C '{line}'"
    # In front of what the user has; what fish runs must not load fish's libraries.
    said = _printed([program, "--no-config", "-c", script],
                    environment_of({**environment, **needed}))
    return [offered.split("\t")[0] for offered in said.split("\n")]


def _zsh(words, environment, folder):
    program, needed = program_of("zsh")
    folder.mkdir()
    (folder / ".zshenv").write_text(needed)
    (folder / ".zshrc").write_text(_ZSH)
    offered = folder / "offered"
    variables = environment_of({**environment, "ZDOTDIR": str(folder), "OFFERED": str(offered)})
    process, master = pty.fork()
    if process == 0:
        os.execve(program, ["zsh", "-d", "-i"], variables)
    screen = Terminal(process, master)
    try:
        screen.wait_for("ready> ")
        screen.type(" ".join(["pudica", *words]) + "\t")

        def ended():
            screen.read_some(0)
            return offered.exists() and "END" in offered.read_text().split("\n")

        wait_for("zsh's completion", ended)
    finally:
        screen.close()
    return offered.read_text().split("END")[0].split("\n")


def complete(shell, words, environment, folder):
    """`folder`: one that is not there yet, for what the shell reads."""
    offers = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return sorted({word for word in offers(words, environment, folder) if word})
