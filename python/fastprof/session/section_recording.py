"""The recorder's sections as a part of a run, and their synchronisation with the GPU."""

from dataclasses import replace

from fastprof.capture.options import Recorder
from fastprof.capture.sync import CudaSync
from fastprof.session.loaders.timing import NO_LOADER
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot


class Sections(Part):
    """Records sections, steps and loaders.

    Args:
        sync: whether sections wait for the GPU before they read the clock.
    """

    kind = "section"
    must_begin = True

    def __init__(self, recorder: Recorder, sync: bool) -> None:
        self._recorder = recorder
        self._wanted = sync
        self._sync = CudaSync()

    def begin(self) -> None:
        self._sync.install()
        self._recorder.sync = self._wanted
        self._recorder.start_sections()
        self._recorder.set_loader(NO_LOADER)

    def end(self, count: int) -> None:
        try:
            self._recorder.stop_sections()
        finally:
            self._sync.uninstall()

    def forget(self) -> None:
        self.end(0)

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        failures = self._sync.failures
        if not failures:
            return snapshot
        return replace(snapshot, counters={**snapshot.counters, "sync_errors": failures})
