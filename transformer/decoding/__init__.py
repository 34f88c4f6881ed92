"""From token ids to translations."""
