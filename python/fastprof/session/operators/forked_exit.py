"""Lets a forked child of a process that had a session of torch.profiler exit.

From its first session on, torch's collector has a thread.  A forked child has no such thread, but
the collector's destructor waits for it, for ever, when the child exits through C's ``exit``
(``sys.exit`` after ``os.fork``; multiprocessing uses ``os._exit``).  So such a child skips the
destructors and exit functions that were registered before the fork, as ``os._exit`` skips them.
"""

import os

_watching = False


def let_children_exit() -> None:
    """Call this before a session begins; torch, which is imported, has imported ctypes."""
    global _watching
    if _watching:
        return
    _watching = True
    import ctypes

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "on_exit"):
        return  # not the GNU C library

    def leave_early() -> None:
        # What is registered last runs first.  on_exit passes the exit status, which is the argument
        # of _exit; __cxa_atexit passes a null pointer, for which fflush writes all of C's streams.
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)

    os.register_at_fork(after_in_child=leave_early)
