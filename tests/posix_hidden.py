"""Removes the modules, functions and constants that native Windows lacks. Call `hide` before anything of ours is imported.

os.name stays, because Python's own library chooses its implementation by it.
"""

import mmap
import os
import select
import signal
import socket
import sys
import time

MODULES = ("fcntl", "grp", "nis", "pty", "pwd", "readline", "resource", "spwd", "syslog", "termios", "tty")
# The public names of os on Windows, by its documentation.
OF_WINDOWS = """
    DirEntry F_OK GenericAlias Mapping MutableMapping O_APPEND O_CREAT O_EXCL O_RDONLY O_RDWR O_TRUNC O_WRONLY P_NOWAIT P_WAIT
    PathLike R_OK SEEK_CUR SEEK_END SEEK_SET TMP_MAX W_OK X_OK EX_OK abc abort access altsep chdir chmod close closerange
    cpu_count curdir defpath device_encoding devnull dup dup2 environ error execl execle execlp execlpe execv execve execvp
    execvpe extsep fdopen fsdecode fsencode fspath fstat fsync ftruncate get_exec_path get_inheritable get_terminal_size getcwd
    getcwdb getenv getlogin getpid getppid isatty kill linesep link listdir lseek lstat makedirs mkdir name open pardir path
    pathsep pipe popen putenv read readlink remove removedirs rename renames replace rmdir scandir sep set_inheritable spawnl
    spawnle spawnv spawnve st stat stat_result statvfs_result strerror supports_bytes_environ supports_dir_fd
    supports_effective_ids supports_fd supports_follow_symlinks symlink sys system terminal_size times times_result truncate
    umask uname_result unlink unsetenv urandom utime waitpid waitstatus_to_exitcode walk write
""".split()
# What the library of Python on POSIX uses itself.
OF_PYTHON = "WIFSTOPPED WNOHANG WSTOPSIG get_blocking getuid posix_spawn register_at_fork statvfs uname".split()
SIGNALS = ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN")


def hide() -> None:
    """Remove everything that Windows lacks."""
    for name in MODULES:
        sys.modules[name] = None  # importing it raises ModuleNotFoundError
    for name in dir(os):
        if not name.startswith("_") and name not in (*OF_WINDOWS, *OF_PYTHON):
            delattr(os, name)
    for name in dir(signal):
        if name.startswith("SIG") and name.isupper() and name not in SIGNALS:
            delattr(signal, name)
    for module, prefix in ((mmap, "MADV_"), (select, "epoll"), (select, "poll"), (socket, "AF_UNIX")):
        for name in dir(module):
            if name.startswith(prefix):
                delattr(module, name)
    for module, names in ((signal, ("alarm", "setitimer", "pthread_kill", "sigwait")), (time, ("tzset", "clock_settime"))):
        for name in names:
            delattr(module, name)
