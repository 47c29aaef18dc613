"""How often ranks exchange values, and how long they wait for each other, in seconds."""

#: Between windows published and judged, and between looks for a request.
PUBLISH_S = 5.0
LOOK_S = 1.0
#: The end of a run waits this long for the thread, then leaves it alone.
PATIENCE_S = 1.0
SLICE_S = 0.05
#: The end of a run that prints a report waits this long for the last windows of other ranks.
LAST_S = 5.0
#: The same where nobody knows with which status the program ends: one that fails ends the others.
UNKNOWN_END_S = 1.0
#: Seconds after which a missing store counts as absent; looks for it become less frequent.
FIND_S = 600.0
RETRY_S = 5.0
#: How long to retry a store that no longer answers.
LOST_S = 60.0
#: Between the connections of ranks.
APART_S = 0.02
MOST_APART_S = 20.0
