"""Reports on recordings; needs neither the extension nor the recording process."""
