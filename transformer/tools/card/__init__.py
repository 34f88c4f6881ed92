"""A model card and a report page for a run."""
