"""What costs most, the fix and the saving: rules over the measurements of a report."""
