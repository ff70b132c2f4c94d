"""Watches over an untrusted process from a shell, which survives this program: if this program is
killed, the shell ends the process, and removes its folder.
"""

import subprocess
import tempfile
from pathlib import Path

__all__ = ["Watch"]

_SCRIPT = """
folder=$(mktemp -d) && echo "$folder" || exit 1
while read -r line && [ "$line" != ended ]; do pid=$line; done
if [ "$line" != ended ] && [ -n "$pid" ]; then
    for child in $(cat "/proc/$pid/task/$pid/children"); do kill -KILL "$child"; done
    for second in 1 2 3 4 5; do kill -0 "$pid" && sleep 1; done
    kill -KILL -- "-$pid"
fi
chmod -R u+rwx -- "$folder"
rm -rf -- "$folder"
"""
"""The shell makes the folder, so that there is none without a shell. It reads the id of the process, and then "ended".
The end of the pipe without this word says that this program was killed. A
supervisor then has five seconds to end what is left.
"""


class Watch:
    """A new folder for an untrusted process, and the shell that removes it."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                "PATH": "/usr/bin:/bin",
                "TMPDIR": tempfile.gettempdir(),
            },  # the folder's name does not mention attnspec
            cwd="/",
            start_new_session=True,  # an interrupt from the keyboard does not end it
        )
        assert self._shell.stdout is not None
        folder = self._shell.stdout.readline().decode().rstrip("\n")
        if not folder:
            self._shell.communicate()
            raise ValueError(f"A folder cannot be made in {tempfile.gettempdir()}: is the disk full, or read-only?")
        self.folder = Path(folder).resolve()

    def guard(self, pid: int) -> None:
        """Watch over a process too, which is the first of its session."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(b"%d\n" % pid)
        self._shell.stdin.flush()

    def end(self) -> None:
        """Remove the folder, also if it is deep, or if permissions of its folders forbid it. The
        process has ended before.
        """
        self._shell.communicate(b"ended\n")
