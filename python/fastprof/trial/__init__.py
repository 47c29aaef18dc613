"""Trials: a program is run with fixes that are applied from outside, and their saving is measured.

``interventions.py`` has the table of fixes, ``choose.py`` takes those for which a finding speaks.
``runs.py`` starts the processes, in which ``recording.py``, ``losses.py`` and ``changes.py`` run.
``verdict.py`` judges, ``text.py`` and ``patch.py`` write.  Decision 60 has the reasons.
"""
