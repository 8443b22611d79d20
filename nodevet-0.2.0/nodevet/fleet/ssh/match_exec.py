"""The commands of `Match exec` in ssh_config(5). Shard process only."""

import os
import signal
import subprocess
from contextlib import suppress

from nodevet.fleet.ssh.errors import SshConfigError

SECONDS = 10  # for a command, if the host's deadline is not sooner

# Run the command, and a watcher on a pipe from nodevet: if nodevet ends, even by a signal,
# the watcher kills both and their children.
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
SIGNALS = range(129, 193)  # exit codes of a shell whose command was ended by a signal


def succeeds(command: str) -> bool:
    """Whether a command line of the user's shell exits with 0; its output is dropped, as by ssh.

    Raises SshConfigError if it cannot run, is killed, or does not end in time. Any error while
    waiting ends the command.
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
