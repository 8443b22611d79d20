"""The commands of `Match exec` in ssh_config(5). Shard process only."""

import os
import signal
import subprocess
from contextlib import suppress

from nodevet.fleet.ssh.errors import SshConfigError

SECONDS = 10  # that a command may take, if the host's deadline is not sooner

# The command, and a watcher on a pipe from us: when we are gone, even if we were killed,
# the watcher ends them both with all that they started.
LEASH = """
exec 3<&0
"$1" -c "$2" </dev/null 3<&- &
command=$!
{ read -r _; kill -KILL 0; } <&3 &
watcher=$!
wait $command
code=$?
kill $watcher
exit $code
"""
SIGNALS = range(129, 193)  # what a shell makes of a command that a signal ended


def fulfilled(command: str) -> bool:
    """Whether a command line of the user's shell ends with 0, as ssh asks it: in silence.

    Raises SshConfigError for one that cannot run, is killed, or does not end in time. Whatever ends
    the wait ends the command.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    if not os.access(shell, os.X_OK):
        raise SshConfigError(f"Match exec: the shell {shell} cannot be run; see $SHELL")
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", LEASH, "sh", shell, command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise SshConfigError(f"Match exec: cannot run /bin/sh: {error.strerror}") from error
    try:
        code = process.wait(SECONDS)
    except subprocess.TimeoutExpired as error:
        raise SshConfigError(f"Match exec: timed out after {SECONDS} s: {command}") from error
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
    if code in SIGNALS:
        raise SshConfigError(f"Match exec: killed by signal {code - 128}: {command}")
    return code == 0
